"""FedLS-NTD: distillation over the classes that are not the label."""

from __future__ import annotations

from edgefl.methods.objectives.ntd import NotTrueDistillation
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("ntd")(
    Recipe(
        summary="FedAvg with distillation over the classes that are not the label",
        paper="Lee et al. 2022 (FedNTD), Eq. 4",
        objective=NotTrueDistillation,
        rule=Sgd,
        server=Mean(),
    )
)
