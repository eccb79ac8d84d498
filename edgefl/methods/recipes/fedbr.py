"""FedBR: only some blocks are sent, and they regularise local training."""

from __future__ import annotations

from edgefl.methods.client_state import ClientState
from edgefl.methods.objectives.fedbr import FedBR
from edgefl.methods.payloads.blocks import BlocksPayload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("fedbr")(
    Recipe(
        summary="sends only the last blocks, as many as the scheduler chooses, and regularises with them",
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
