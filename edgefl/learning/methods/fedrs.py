"""FedRS: restricted softmax for classes that a client lacks."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.fedrs import FedRS
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("fedrs")(
    Recipe(
        summary="FedAvg with smaller logits for classes that a client lacks",
        paper="Li and Zhan 2021 (FedRS)",
        objective=FedRS,
        rule=Sgd,
        server=Mean(),
    )
)
