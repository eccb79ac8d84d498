"""FedAvg: local SGD, then the mean."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fedavg")(
    Recipe(
        summary="local SGD, then the weighted mean of the models",
        paper="McMahan et al. 2017, Alg. 1",
        objective=CrossEntropy,
        rule=Sgd,
        server=Mean(),
    )
)
