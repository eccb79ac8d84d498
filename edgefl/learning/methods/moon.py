"""MOON: a contrastive term between the received model's and the client's previous features."""

from __future__ import annotations

from edgefl.learning.client_state import ClientState
from edgefl.learning.methods.recipe import METHODS, Recipe
from edgefl.learning.objectives.moon import Moon
from edgefl.learning.rules.sgd import Sgd
from edgefl.learning.servers.mean import Mean

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
