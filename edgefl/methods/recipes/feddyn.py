"""FedDyn: a penalty that depends on each client's past updates."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.feddyn import FedDynServer

METHODS.register("feddyn")(
    Recipe(
        summary="a penalty per client that makes local optima agree with the global one",
        paper="Acar et al. 2021 (FedDyn), Alg. 1",
        objective=CrossEntropy,
        rule=Sgd,
        server=FedDynServer(),
        weighting="uniform",
    )
)
