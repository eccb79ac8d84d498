"""FedAdam: Adam on the server."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.fedadam import FedAdam

METHODS.register("fedadam")(
    Recipe(
        summary="FedAvg with Adam on the server",
        paper="Reddi et al. 2021, Alg. 2",
        objective=CrossEntropy,
        rule=Sgd,
        server=FedAdam(),
        weighting="uniform",
    )
)
