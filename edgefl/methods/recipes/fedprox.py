"""FedProx: FedAvg with a quadratic proximal term around the received model."""

from __future__ import annotations

from edgefl.methods.objectives.fedprox import FedProx
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fedprox")(
    Recipe(
        summary="FedAvg with a proximal term that keeps local models near the received one",
        paper="Li et al. 2020, Eq. 2 and Alg. 2",
        objective=FedProx,
        rule=Sgd,
        server=Mean(),
    )
)
