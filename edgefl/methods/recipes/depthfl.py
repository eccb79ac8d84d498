"""DepthFL: each client trains the first blocks of the model, with a classifier after each, as its device allows."""

from __future__ import annotations

from edgefl.methods.objectives.depthfl import DepthFL
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean
from edgefl.methods.submodels.depth import Depth

METHODS.register("depthfl")(
    Recipe(
        summary="each client trains the first blocks, as many as its device allows, with a classifier after each",
        paper="Kim et al. 2023 (DepthFL), Sec. 3 and Alg. 1",
        objective=DepthFL,
        rule=Sgd,
        server=Mean(),
        submodels=Depth,
        weighting="uniform",
        defaults={"levels": (1.0, 0.75, 0.5, 0.25)},
    )
)
