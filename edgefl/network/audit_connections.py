"""When the limits of logged flows change by themselves: slow start and losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from edgefl.network.audit_records import FlowRecord
from edgefl.network.tcp import Opening, Tcp


class Grown(NamedTuple):
    """A flow's window has grown for one more round-trip time."""

    flow: int


class Lost(NamedTuple):
    """The next part of a flow begins, in which losses allow another rate."""

    flow: int


def window_changes(tcp: Tcp, record: FlowRecord, latency: float) -> Iterator[tuple[float, Grown | Lost]]:
    """When the window of a flow grows while the flow is active, and when losses change its rate.

    Args:
        tcp: how connections grow.
        record: the flow.
        latency: the one-way latency of its path, seconds.

    >>> record = FlowRecord(0, ("a",), 1e6, started=0.0, latency=0.5, ended=3.0, opening=Opening(0))
    >>> [seconds for seconds, _ in window_changes(Tcp(initial_window=10, window=50e3), record, 0.5)]
    [1.5, 2.5]
    """
    opening = record.opening or Opening(0)
    joined = record.started + record.latency
    ended = math.inf if record.ended is None else record.ended
    ticks = 1
    while tcp.grows(latency, opening) and joined + ticks * 2.0 * latency < ended:
        yield joined + ticks * 2.0 * latency, Grown(record.flow)
        opening = opening._replace(rounds=opening.rounds + 1)
        ticks += 1
    for seconds in record.losses:
        yield seconds, Lost(record.flow)
