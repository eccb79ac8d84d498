"""FedAvgM: momentum on the server, in units of the model."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.fedavgm import FedAvgM

METHODS.register("fedavgm")(
    Recipe(
        summary="FedAvg with server momentum",
        paper="Hsu et al. 2019 (FedAvgM)",
        objective=CrossEntropy,
        rule=Sgd,
        server=FedAvgM(),
    )
)
