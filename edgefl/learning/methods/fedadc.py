"""FedADC: the server's momentum inside the clients' local steps."""

from __future__ import annotations

from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.cross_entropy import CrossEntropy
from edgefl.learning.payloads.fedadc import FedAdcPayload
from edgefl.learning.rules.fedadc import FedAdcRule
from edgefl.learning.servers.fedadc import FedAdcServer

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
