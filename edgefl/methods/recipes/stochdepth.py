"""FedAvg with residual blocks dropped at random."""

from __future__ import annotations

from edgefl.methods.objectives.stochdepth import StochasticDepth
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("stochdepth")(
    Recipe(
        summary="FedAvg with residual blocks dropped at random",
        paper="Huang et al. 2016; baseline of Mendieta et al. 2022",
        objective=StochasticDepth,
        rule=Sgd,
        server=Mean(),
    )
)
