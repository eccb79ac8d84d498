"""FedAvg+FitNet: the received model's features are hints."""

from __future__ import annotations

from edgefl.methods.objectives.fitnet import FitNet
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fitnet")(
    Recipe(
        summary="FedAvg with the received model's features as hints",
        paper="Romero et al. 2015; baseline of Kim et al. 2022",
        objective=FitNet,
        rule=Sgd,
        server=Mean(),
    )
)
