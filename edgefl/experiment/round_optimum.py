"""The least possible seconds of each round of a run, from the costs that its world gives each client."""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet import Slowdown
from edgefl.network.specs import StarTopology
from edgefl.scenario import Scenario
from edgefl.scheduling.optimum import ClientCosts, least_seconds
from edgefl.simulation.protocols.synchronous import SynchronousSpec
from edgefl.simulation.setup import Setup
from edgefl.simulation.work import Work, WorkModel


class LeastRoundSeconds:
    """The least possible seconds of each round of a run; see :class:`~edgefl.simulation.rounds.RoundOptimum`.

    Costs are those that a round really has, with its capacities and slowdowns; ``why_not`` says why they are not known.
    """

    def __init__(self, scenario: Scenario, setup: Setup) -> None:
        self._known: dict[tuple[object, ...], float] = {}
        self._setup = setup
        self.why_not = _unknown(scenario, setup)
        if self.why_not is not None or not isinstance(scenario.network.topology, StarTopology):
            return
        star, transport = scenario.network.topology, setup.transport
        self._links = setup.capacity_changes
        if any(np.isnan(self._links.capacities(direction, 0)).any() for direction in ("down", "up")):
            self.why_not = "capacities change in the course of a round"
            return
        latency = [
            star.latency if (own := scenario.network.links[str(name)].latency) is None else own
            for name in setup.fleet.link_names()
        ]
        self._delay = transport.latency_factor * np.array(latency)
        self._limit = np.array([transport.limit(each) for each in latency])
        # With multicast, one transfer over the server's link serves all clients.
        self._server_down = math.inf if transport.multicast else transport.efficiency * star.server.down
        self._server_up = transport.efficiency * star.server.up
        self._slowdown = Slowdown(setup.fleet, setup.seed)

    @cached_property
    def bytes_down(self) -> int:
        parts = self._setup.method.payload.downlink(self._setup.sizes, 0, None, None).parts
        return sum(part.bytes for part in parts)

    def least_seconds(self, round: int, available: NDArray[np.int64], updates: int) -> float:
        able = available[self._fits[available]]
        costs = self.costs(round, able)
        # Rates that are redrawn every ten rounds give ten equal rounds, if devices are not slowed down.
        key = (updates, *(each.tobytes() for each in (able, costs.down_rate, costs.up_rate, costs.between)))
        if key not in self._known:
            self._known[key] = least_seconds(costs, updates)
        return self._known[key]

    def costs(self, round: int, clients: NDArray[np.int64]) -> ClientCosts:
        """The costs of a round (from 0) with the whole model for these clients."""
        setup, ones = self._setup, np.ones(len(clients))
        efficiency = setup.transport.efficiency
        down, up = (
            np.minimum(self._limit, efficiency * self._links.capacities(direction, round))[clients]
            for direction in ("down", "up")
        )
        delay = self._delay[clients]
        return ClientCosts(
            down_bits=8.0 * self.bytes_down * ones,
            down_rate=down,
            start=delay,
            between=self._compute_seconds(round)[clients] + delay,
            up_bits=8.0 * sum(part.bytes for part in setup.uplink()) * ones,
            up_rate=up,
            server_down=self._server_down,
            server_up=self._server_up,
        )

    def _compute_seconds(self, round: int) -> NDArray[np.float64]:
        """Of every client, with the random slowdowns of the round."""
        slow = self._slowdown.of(round)
        if self._setup.seconds is not None:
            return np.asarray(self._setup.seconds.of(round) * slow)
        if self._seconds is not None:
            return self._seconds * slow
        return np.array([work.pace(float(factor)).seconds for work, factor in zip(self._works, slow, strict=True)])

    # The costs of steps are measured when the first round asks for them.

    @cached_property
    def _works(self) -> list[Work]:
        setup = self._setup
        method = setup.method
        work = WorkModel(setup.cost, setup.fleet, setup.samples, method.local, lambda _: None, method.submodels)
        return [work.of(client, setup.sizes.blocks) for client in range(setup.clients)]

    @cached_property
    def _fits(self) -> NDArray[np.bool_]:
        return np.array([each.fits for each in self._works])

    @cached_property
    def _seconds(self) -> NDArray[np.float64] | None:
        """Of every client without slowdowns; None if heat changes them."""
        throttles = any(each.cool_for < math.inf for each in self._works)
        return None if throttles else np.array([each.seconds for each in self._works])


def optimum_of(scenario: Scenario, setup: Setup) -> LeastRoundSeconds | None:
    """What compares a run's rounds with the best possible; None if it is not wanted, or costs are unknown."""
    if not scenario.evaluation.optimum:
        return None
    known = LeastRoundSeconds(scenario, setup)
    return known if known.why_not is None else None


def _unknown(scenario: Scenario, setup: Setup) -> str | None:
    protocol, method = setup.protocol, setup.method
    if not isinstance(protocol, SynchronousSpec):
        return "cells average before the server"
    reasons = {
        "the topology is no star": not isinstance(scenario.network.topology, StarTopology),
        "the method sends parts of the model, or sends them before the round": method.overlap
        or method.payload.sends_blocks,
        "clients train parts of the model of different sizes": method.submodels is not None,
        "links or devices fail during rounds": bool(setup.failures),
        "clients restart after accidents": protocol.retries > 0,
        "late clients take fewer steps": protocol.late == "partial",
        "the server chooses the local steps of each round": method.local.common_finish is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
