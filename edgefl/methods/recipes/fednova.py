"""FedNova: deltas divided by the number of local steps."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.fednova import FedNova

METHODS.register("fednova")(
    Recipe(
        summary="FedAvg with deltas normalised by the number of local steps",
        paper="Wang et al. 2020 (FedNova), Eqs. 5-6",
        objective=CrossEntropy,
        rule=Sgd,
        server=FedNova(),
    )
)
