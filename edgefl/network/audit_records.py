"""The records of transfers in a log, as the audit reads them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from edgefl.network.allotment import Outlook
from edgefl.network.tcp import Opening
from edgefl.network.topology import Node

Link = Hashable
"""The name of a link: its number, or its two nodes."""


@dataclass(frozen=True)
class FlowRecord:
    """The record of one flow in a log.

    Attributes:
        flow: its number in violations.
        path: the links that it crossed.
        bytes: its size.
        started: when it was requested, seconds.
        latency: seconds of its path's latency and of the set-up of a connection, in which it used no bandwidth.
        ended: when it was complete or cancelled; None where it was still in progress at the end of the log.
        delivered: bytes that arrived; None for the size, or where it is unknown.
        cancelled: whether it was stopped.
        weight: its share of a contended link.
        pruned: of a multicast: (seconds, links that it stopped using then), as receivers left it.
        ends: its source and target, where they share a queue.
        setup: the part of ``latency`` that the set-up of its connection took.
        opening: the state of its connection at its start; None without connections.
        losses: when expected losses changed its rate, seconds.
        outlook: what an allocator knew about its client's round; None for nothing.
    """

    flow: int
    path: tuple[Link, ...]
    bytes: float
    started: float
    latency: float = 0.0
    ended: float | None = None
    delivered: float | None = None
    cancelled: bool = False
    weight: float = 1.0
    pruned: tuple[tuple[float, tuple[Link, ...]], ...] = ()
    ends: tuple[Node, Node] | None = None
    setup: float = 0.0
    opening: Opening | None = None
    losses: tuple[float, ...] = ()
    outlook: Outlook | None = None


def merged(members: Sequence[FlowRecord]) -> FlowRecord:
    """The members of one multicast as the one flow that its links carry.

    It waits for the longest of their latencies, and lasts until its last member ends. A cancelled member also removes
    the links that no other member uses.

    >>> near = FlowRecord(0, ("trunk", "near"), 1e6, started=0.0, latency=0.1, ended=2.0)
    >>> gone = FlowRecord(1, ("trunk", "far"), 1e6, started=0.0, latency=0.3, ended=1.0, cancelled=True)
    >>> both = merged([near, gone])
    >>> both.path, both.latency, both.ended, both.pruned
    (('trunk', 'far', 'near'), 0.3, 2.0, ((1.0, ('far',)),))
    """
    latency = max(member.latency for member in members)
    joined = members[0].started + latency
    lasting = sorted(members, key=lambda member: math.inf if member.ended is None else member.ended)
    # A member that leaves before the first byte flows, or with it, has used nothing; the last one always represents
    # all.
    using = [m for m in lasting if not (m.cancelled and m.ended is not None and m.ended <= joined)] or lasting[-1:]
    last, path = using[-1], dict.fromkeys(link for member in using for link in member.path)
    pruned = []
    others: set[Link] = set()
    for member in reversed(using):
        alone = tuple(link for link in member.path if link not in others)
        others.update(alone)
        if member.cancelled and alone and member.ended is not None and member.ended != last.ended:
            pruned.append((member.ended, alone))
    return replace(last, path=tuple(path), latency=latency, pruned=tuple(pruned), ends=None)


class Repetition(NamedTuple):
    """What happened in the ``period`` seconds from ``since`` on happened ``times`` more until ``ended``."""

    since: float
    period: float
    times: int
    ended: float
