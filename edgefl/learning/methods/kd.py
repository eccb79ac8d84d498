"""FedAvg+KD: the received model is the teacher."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.kd import KnowledgeDistillation
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("kd")(
    Recipe(
        summary="FedAvg with distillation from the received model",
        paper="Hinton et al. 2015; baseline of Kim et al. 2022",
        objective=KnowledgeDistillation,
        rule=Sgd,
        server=Mean(),
    )
)
