"""FedRS: restricted softmax for classes that a client lacks."""

from __future__ import annotations

from edgefl.methods.objectives.fedrs import FedRS
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fedrs")(
    Recipe(
        summary="FedAvg with smaller logits for classes that a client lacks",
        paper="Li and Zhan 2021 (FedRS)",
        objective=FedRS,
        rule=Sgd,
        server=Mean(),
    )
)
