"""FedAvg with residual blocks dropped at random."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.stochdepth import StochasticDepth
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("stochdepth")(
    Recipe(
        summary="FedAvg with residual blocks dropped at random",
        paper="Huang et al. 2016; baseline of Mendieta et al. 2022",
        objective=StochasticDepth,
        rule=Sgd,
        server=Mean(),
    )
)
