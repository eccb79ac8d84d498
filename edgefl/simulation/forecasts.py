"""What a round is predicted to take for each client, from what is known now."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet import compute_joules
from edgefl.scheduling.blocks.makespan import BlockForecast
from edgefl.scheduling.selection.base import Charge, Foreseen
from edgefl.simulation.world import World


class Forecasts:
    """Predictions for selectors and block schedulers.

    Args:
        world: the world of the run.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def of_round(self, round: int, clients: NDArray[np.int64]) -> Foreseen:
        """The predicted seconds of a round with the whole model for each client."""
        world, setup = self._world, self._world.setup
        sizes = setup.sizes
        asked = clients.tolist()
        bytes = [self._bytes(client) for client in asked]
        return Foreseen(
            np.array(
                [
                    world.traffic.foreseen(client, "down").seconds(down)
                    for client, (down, _) in zip(asked, bytes, strict=True)
                ]
            ),
            np.array([world.foreseen_compute(client, round, world.work.of(client, sizes.blocks)) for client in asked]),
            np.array(
                [world.traffic.foreseen(client, "up").seconds(up) for client, (_, up) in zip(asked, bytes, strict=True)]
            ),
        )

    def charge(self, round: int, clients: NDArray[np.int64]) -> Charge:
        """The clients' batteries now, and what a round with the whole model is predicted to use of them."""
        world = self._world
        level, used = np.ones(len(clients)), np.zeros(len(clients))
        charges = world.batteries.charges
        foreseen = self.of_round(round, clients)
        draws = world.accounts.draws
        for place, client in enumerate(clients.tolist()):
            if not charges.has(client):
                continue
            down, compute, up = (float(seconds[place]) for seconds in foreseen)
            down_bytes, up_bytes = self._bytes(client)
            joules = (
                draws.idle(client, down + up)
                + compute_joules(world.device(client), compute)
                + draws.transfer(client, "down", down, down_bytes)
                + draws.transfer(client, "up", up, up_bytes)
            )
            level[place] = world.batteries.left(client) / charges.capacity[client]
            # Over a link that is down a transfer never ends, even with a radio without watts.
            used[place] = joules / charges.capacity[client] if math.isfinite(joules) else math.inf
        return Charge(level, used)

    def of_blocks(self, round: int, cohort: Sequence[int]) -> BlockForecast:
        """The cost of each α for each client, given the parts that it holds now."""
        world, sizes = self._world, self._world.setup.sizes
        seconds = np.empty((len(cohort), sizes.blocks))
        bytes = np.empty((len(cohort), sizes.blocks), np.int64)
        free = np.ones(len(cohort), dtype=bool)
        for row, client in enumerate(cohort):
            down = world.traffic.foreseen(client, "down")
            uplink = sum(part.bytes for part in world.uplink(client))
            upload = world.traffic.foreseen(client, "up").seconds(uplink)
            for alpha in range(1, sizes.blocks + 1):
                downlink = world.downlink(client, round, alpha)
                size = sum(part.bytes for part in downlink.parts)
                bytes[row, alpha - 1] = size
                compute = world.foreseen_compute(client, round, world.work.of(client, downlink.alpha))
                seconds[row, alpha - 1] = down.seconds(size) + compute + upload
                free[row] &= not downlink.forced_full
        return BlockForecast(seconds, bytes, free)

    def _bytes(self, client: int) -> tuple[int, int]:
        """The bytes of the client's whole downlink and of its uplink."""
        world = self._world
        down = world.setup.sizes_of(world.level_of(client)).model_bytes
        return down, sum(part.bytes for part in world.uplink(client))
