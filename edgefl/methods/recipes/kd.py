"""FedAvg+KD: the received model is the teacher."""

from __future__ import annotations

from edgefl.methods.objectives.kd import KnowledgeDistillation
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("kd")(
    Recipe(
        summary="FedAvg with distillation from the received model",
        paper="Hinton et al. 2015; baseline of Kim et al. 2022",
        objective=KnowledgeDistillation,
        rule=Sgd,
        server=Mean(),
    )
)
