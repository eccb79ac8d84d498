"""FedBR: only some blocks are sent, and they regularise local training."""

from __future__ import annotations

from edgefl.learning.client_state import ClientState
from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.fedbr import FedBR
from edgefl.learning.payloads.blocks import BlocksPayload
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

METHODS.register("fedbr")(
    Recipe(
        summary="sends only the last blocks, as many as the scheduler chooses, and regularises by them",
        paper="Tan et al. 2023 (FedBR), Eqs. 15-24 and Alg. 1",
        objective=FedBR,
        rule=Sgd,
        server=Mean(),
        payload=BlocksPayload,
        # Blocks that are not sent are the client's own, from the end of its last participation.
        state=ClientState(),
        weighting="uniform",
        scheduler="gmbs",
    )
)
