"""FedAvgM: momentum on the server, in units of the model."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.cross_entropy import CrossEntropy
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.fedavgm import FedAvgM

METHODS.register("fedavgm")(
    Recipe(
        summary="FedAvg with server momentum",
        paper="Hsu et al. 2019 (FedAvgM)",
        objective=CrossEntropy,
        rule=Sgd,
        server=FedAvgM(),
    )
)
