"""The data of a finished run that the invariants check."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edgefl.fleet import FleetAssignment
from edgefl.network import Topology, Transport
from edgefl.network.timeouts import Timeouts
from edgefl.record.emulation import Emulation
from edgefl.record.events import Event
from edgefl.record.kinds import EventKind
from edgefl.record.summary import SeedResult
from edgefl.scheduling.bandwidth.base import BandwidthSpec
from edgefl.simulation.cost_specs import ComputeSeconds
from edgefl.simulation.failure_specs import Crash, Outage
from edgefl.simulation.protocol_specs import ProtocolSpec, SynchronousSpec
from edgefl.simulation.work import StepCost

TOLERANCE = 1e-9
"""Relative difference that rounding may cause in a sum or a product of float64 numbers."""


@dataclass(frozen=True)
class Record:
    """One run, read from its files.

    Attributes:
        events: the log, in order.
        rounds: the columns of ``rounds.parquet``.
        summary: the run's entry in ``summary.json``.
        fleet: the device of each client.
        costs: the cost of a local step by (alpha, batch, level).
        topology: the network's links; the log contains their capacities.
        transport: how transfers used their paths.
        protocol: the protocol of the rounds.
        seconds: the seconds of local training, if the scenario gives them.
        timeouts: when transfers broke; None: never.
        failures: crashes and outages at given times.
        emulation: how the seconds were measured; None: they were computed.
        bandwidth: how the server divided its bandwidth; None for equal shares.
    """

    events: Sequence[Event]
    rounds: Mapping[str, Sequence[Any]]
    summary: SeedResult
    fleet: FleetAssignment
    costs: Mapping[tuple[int, int, int], StepCost]
    topology: Topology
    transport: Transport
    protocol: ProtocolSpec = field(default_factory=SynchronousSpec)
    seconds: ComputeSeconds | None = None
    timeouts: Timeouts | None = None
    failures: Sequence[Crash | Outage] = ()
    emulation: Emulation | None = None
    bandwidth: BandwidthSpec | None = None

    @cached_property
    def by_kind(self) -> dict[EventKind, list[Event]]:
        """Events of each kind, in order."""
        kinds: dict[EventKind, list[Event]] = {}
        for event in self.events:
            kinds.setdefault(event.kind, []).append(event)
        return kinds

    def of(self, *kinds: EventKind) -> Iterator[Event]:
        """Events of these kinds, in order of kinds, then of time."""
        for kind in kinds:
            yield from self.by_kind.get(kind, ())


def close(a: float, b: float, *, tolerance: float = TOLERANCE, clock: float = 0.0) -> bool:
    """Whether two numbers are equal up to rounding; seconds also up to a few float increments at the time ``clock``.

    After a year the difference of two times is exact only to some nanoseconds.
    """
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=max(tolerance, 4 * math.ulp(clock)))


def at(event: Event) -> str:
    """Return the description of an event for violations."""
    who = f", client {event.client}" if event.client >= 0 else ""
    return f"{event.kind} at {event.time:.6f} s{who}"
