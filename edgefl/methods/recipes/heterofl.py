"""HeteroFL: each client trains the first channels of each layer, as many as its device allows."""

from __future__ import annotations

from edgefl.methods.objectives.heterofl import HeteroFL
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean
from edgefl.methods.submodels.scaled_width import ScaledWidth

METHODS.register("heterofl")(
    Recipe(
        summary="each client trains the first channels of each layer, as many as its device allows",
        paper="Diao et al. 2021 (HeteroFL), Sec. 3 and Alg. 1",
        objective=HeteroFL,
        rule=Sgd,
        server=Mean(),
        submodels=ScaledWidth,
        weighting="uniform",
    )
)
