"""The costs of a round for each client, as far as they are known when it begins, for the optimum."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgefl.experiment.wiring import SharedWorld, client_links_of
from edgefl.fleet import Slowdown
from edgefl.network.specs import StarTopology
from edgefl.planning.arena.observed import Rounds
from edgefl.scenario import Scenario
from edgefl.scheduling.optimum.bound import least_seconds
from edgefl.scheduling.optimum.choices import Choices
from edgefl.simulation.protocol_specs import SynchronousSpec
from edgefl.simulation.setup import Setup
from edgefl.simulation.work import WorkModel


class KnownCosts:
    """The least possible seconds of each round of a world.

    Costs are those that the round really has: the capacities of its links, and computing with its random slowdowns.

    Args:
        scenario: the scenario.
        world: its fleet and shards.
        setup: a run of it.

    Attributes:
        why_not: why a round's costs are not known; None if they are.
    """

    def __init__(self, scenario: Scenario, world: SharedWorld, setup: Setup) -> None:
        self._known: dict[tuple[object, ...], float] = {}
        self._setup = setup
        self.why_not = _unknown(scenario, setup)
        if self.why_not is not None or not isinstance(scenario.network.topology, StarTopology):
            return
        star, transport = scenario.network.topology, setup.transport
        self._links = client_links_of(scenario, world)
        if any(np.isnan(self._links.capacities(direction, 0)).any() for direction in ("down", "up")):
            self.why_not = "capacities change in the course of a round"
            return
        latency = [
            star.latency if (own := scenario.network.links[str(name)].latency) is None else own
            for name in setup.fleet.link_names()
        ]
        factor = 1.0 if transport.tcp is not None else transport.latency_factor
        self._delay = factor * np.array(latency)
        self._limit = np.array([transport.limit(each) for each in latency])
        # With multicast, one transfer over the server's link serves all clients.
        self._server_down = math.inf if transport.multicast else transport.efficiency * star.server.down
        self._server_up = transport.efficiency * star.server.up
        self._down = sum(part.bytes for part in setup.method.payload.downlink(setup.sizes, 0, None, None).parts)
        self._up = sum(part.bytes for part in setup.uplink)
        self._slowdown = Slowdown(setup.fleet, setup.seed)
        work = WorkModel(setup.cost, setup.fleet, setup.samples, setup.method.local, lambda _: None)
        self._works = [work.of(client, setup.sizes.blocks) for client in range(setup.clients)]
        self._fits = np.array([each.fits for each in self._works])

    def least_seconds(self, round: int, available: NDArray[np.int64], updates: int) -> float:
        """A certified lower bound on the seconds of a round (from 0) with so many updates of the available clients."""
        able = available[self._fits[available]]
        choices = self.choices(round, able)
        arrays = (choices.down_rate, choices.up_rate, choices.between)
        key = (updates, able.tobytes(), *(each.tobytes() for each in arrays))
        if key not in self._known:
            self._known[key] = least_seconds(choices, updates)
        return self._known[key]

    def choices(self, round: int, clients: NDArray[np.int64]) -> Choices:
        """The participations of clients with the whole model in a round (from 0), each with a utility of 1."""
        setup, ones = self._setup, np.ones(len(clients))
        efficiency = setup.transport.efficiency
        down, up = (
            np.minimum(self._limit, efficiency * self._links.capacities(direction, round))[clients]
            for direction in ("down", "up")
        )
        slow = self._slowdown.of(round)
        if setup.seconds is None:
            compute = np.array([self._works[each].pace(float(slow[each])).seconds for each in clients.tolist()])
        else:
            compute = (setup.seconds.of(round) * slow)[clients]
        delay = self._delay[clients]
        return Choices(
            client=clients,
            down_bits=8.0 * self._down * ones,
            down_rate=down,
            start=delay,
            between=compute + delay,
            up_bits=8.0 * self._up * ones,
            up_rate=up,
            utility=ones,
            joules=np.array([self._works[each].joules for each in clients.tolist()]),
            server_down=self._server_down,
            server_up=self._server_up,
        )

    def transferred_less(self, rounds: Rounds) -> bool:
        """Whether some transfer of a run had fewer bytes than assumed, so that the bound does not hold."""
        return bool(rounds.fewest["down"] < self._down or rounds.fewest["up"] < self._up)


def _unknown(scenario: Scenario, setup: Setup) -> str | None:
    """Why the least seconds of a round are not known; None if they may be."""
    protocol, method = setup.protocol, setup.method
    if not isinstance(protocol, SynchronousSpec):
        return "cells average before the server"
    reasons = {
        "the topology is no star": not isinstance(scenario.network.topology, StarTopology),
        "the method sends parts of the model, or sends them before the round": method.overlap
        or method.payload.sends_blocks,
        "links or devices fail during rounds": bool(setup.failures),
        "clients restart after accidents": protocol.retries > 0,
        "late clients take fewer steps": protocol.late == "partial",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
