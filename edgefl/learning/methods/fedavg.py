"""FedAvg: local SGD, then the mean."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.cross_entropy import CrossEntropy
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("fedavg")(
    Recipe(
        summary="local SGD, then the weighted mean of the models",
        paper="McMahan et al. 2017, Alg. 1",
        objective=CrossEntropy,
        rule=Sgd,
        server=Mean(),
    )
)
