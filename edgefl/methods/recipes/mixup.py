"""FedAvg on mixed pairs of images."""

from __future__ import annotations

from edgefl.methods.objectives.mixup import Mixup
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("mixup")(
    Recipe(
        summary="FedAvg on convex combinations of images",
        paper="Zhang et al. 2018; baseline of Mendieta et al. 2022",
        objective=Mixup,
        rule=Sgd,
        server=Mean(),
    )
)
