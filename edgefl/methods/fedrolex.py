"""FedRolex: HeteroFL with a window of channels that moves by one each round (Alam et al. 2022, Sec. 3.2, Alg. 1)."""

from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.parts.submodels import RollingWidth
from edgefl.methods.recipe import METHODS, Recipe

METHODS["fedrolex"] = Recipe(
    summary="each client trains a window of the channels of each layer, which moves each round",
    paper="Alam et al. 2022 (FedRolex), Sec. 3.2 and Alg. 1",
    objective=CrossEntropy,
    server=Mean(),
    submodels=RollingWidth,
)
