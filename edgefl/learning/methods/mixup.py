"""FedAvg on mixed pairs of images."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.mixup import Mixup
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("mixup")(
    Recipe(
        summary="FedAvg on convex combinations of images",
        paper="Zhang et al. 2018; baseline of Mendieta et al. 2022",
        objective=Mixup,
        rule=Sgd,
        server=Mean(),
    )
)
