"""FedAvg with narrower sub-networks that learn from the full one."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.gradaug import GradAug
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("gradaug")(
    Recipe(
        summary="FedAvg with sub-networks on smaller images that learn from the full one",
        paper="Yang et al. 2020; baseline of Mendieta et al. 2022",
        objective=GradAug,
        rule=Sgd,
        server=Mean(),
    )
)
