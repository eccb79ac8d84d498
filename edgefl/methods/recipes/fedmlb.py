"""FedMLB: FedAvg with hybrid paths through the received model."""

from __future__ import annotations

from edgefl.methods.objectives.fedmlb import FedMLB
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fedmlb")(
    Recipe(
        summary="hybrid paths of local and frozen received blocks regularise every level",
        paper="Kim et al. 2022 (FedMLB), Eqs. 5-8 and Alg. 1",
        objective=FedMLB,
        rule=Sgd,
        server=Mean(),
    )
)
