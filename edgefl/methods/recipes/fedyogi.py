"""FedYogi: Yogi on the server."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.fedyogi import FedYogi

METHODS.register("fedyogi")(
    Recipe(
        summary="FedAvg with Yogi on the server",
        paper="Reddi et al. 2021, Alg. 2",
        objective=CrossEntropy,
        rule=Sgd,
        server=FedYogi(),
        weighting="uniform",
    )
)
