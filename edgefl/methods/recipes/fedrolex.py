"""FedRolex: HeteroFL with a window of channels that moves by one channel each round."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean
from edgefl.methods.submodels.width import RollingWidth

METHODS.register("fedrolex")(
    Recipe(
        summary="each client trains a window of the channels of each layer, which moves each round",
        paper="Alam et al. 2022 (FedRolex), Sec. 3.2 and Alg. 1",
        objective=CrossEntropy,
        rule=Sgd,
        server=Mean(),
        submodels=RollingWidth,
    )
)
