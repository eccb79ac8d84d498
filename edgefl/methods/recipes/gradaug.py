"""FedAvg with narrower sub-networks that learn from the full one."""

from __future__ import annotations

from edgefl.methods.objectives.gradaug import GradAug
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("gradaug")(
    Recipe(
        summary="FedAvg with sub-networks on smaller images that learn from the full one",
        paper="Yang et al. 2020; baseline of Mendieta et al. 2022",
        objective=GradAug,
        rule=Sgd,
        server=Mean(),
    )
)
