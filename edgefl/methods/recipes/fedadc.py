"""FedADC: the server's momentum inside the clients' local steps."""

from __future__ import annotations

from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.payloads.fedadc import FedAdcPayload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.fedadc import FedAdcRule
from edgefl.methods.servers.fedadc import FedAdcServer

METHODS.register("fedadc")(
    Recipe(
        summary="clients follow the server's momentum in their local steps; most of the downlink can overlap",
        paper="Ozfatura et al. (FedADC), Alg. 3 and 4",
        objective=CrossEntropy,
        rule=FedAdcRule,
        server=FedAdcServer(),
        payload=FedAdcPayload,
        weighting="uniform",
        server_choice=False,
        server_reason="its clients follow that server's momentum in their local steps",
    )
)
