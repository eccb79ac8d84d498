"""MOON: a contrastive term between the received model's and the client's previous features."""

from __future__ import annotations

from edgefl.methods.client_state import ClientState
from edgefl.methods.objectives.moon import Moon
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.methods.rules.sgd import Sgd
from edgefl.methods.servers.mean import Mean

METHODS.register("moon")(
    Recipe(
        summary="features close to the received model's and far from the client's previous ones",
        paper="Li et al. 2021 (MOON), Eqs. 3-4",
        objective=Moon,
        rule=Sgd,
        server=Mean(),
        state=ClientState(),
    )
)
