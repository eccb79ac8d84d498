"""FedADC+: FedADC with self-confidence distillation."""

from __future__ import annotations

from edgefl.methods.objectives.self_confidence import SelfConfidence
from edgefl.methods.payloads.fedadc import FedAdcPayload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.fedadc import FedAdcRule
from edgefl.methods.servers.fedadc import FedAdcServer

METHODS.register("fedadc+")(
    Recipe(
        summary="FedADC with distillation from the received model for classes of which a client has few images",
        paper="Ozfatura et al. (FedADC), Sec. III-C, Eqs. 7-9",
        objective=SelfConfidence,
        rule=FedAdcRule,
        server=FedAdcServer(),
        payload=FedAdcPayload,
        weighting="uniform",
        server_choice=False,
        server_reason="its clients follow that server's momentum in their local steps",
    )
)
