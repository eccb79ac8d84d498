"""FedGKD: the mean of the last global models is the teacher."""

from __future__ import annotations

from edgefl.methods.objectives.fedgkd import FedGKD
from edgefl.methods.payloads.extra_vector import FedGkdPayload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.fedgkd import FedGkdServer

METHODS.register("fedgkd")(
    Recipe(
        summary="FedAvg with distillation from the mean of the last global models",
        paper="Yao et al. 2021 (FedGKD)",
        objective=FedGKD,
        rule=Sgd,
        server=FedGkdServer(),
        payload=FedGkdPayload,
        server_choice=False,
        server_reason="it computes the teacher from the last global models",
    )
)
