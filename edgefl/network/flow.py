"""A transfer as the simulated world sees it, and what an observer is told about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import simpy

Node = Hashable
"""A node of the topology: ``"server"``, ``"client/17"``, or any node of the user's graph."""


class Flow(simpy.Event):
    """One transfer; an event that triggers, with the flow as its value, when the last byte has arrived.

    Attributes:
        id: 0, 1, 2, … in the order of start.
        source: the sending node.
        target: the receiving node; the tuple of them for a multicast.
        bytes: the size.
        started: virtual time of the call, seconds.
        ended: virtual time at which it was complete or cancelled, seconds; None while it is under way.
        tag: whatever the caller attached.
        path: the links that it crosses, as indices into the network's link arrays.
        nodes: the names of the nodes on the way, the source first.
        latency: seconds that pass before the first byte flows: the path's, as the transport counts them.
        weight: its share of a contended link relative to flows of weight 1.
        multicast: the number of the multicast that it is part of, None for a flow of its own.
        cancelled: whether it was stopped before it was complete.
    """

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        source: Node,
        target: Node,
        bytes: float,
        *,
        path: tuple[int, ...],
        nodes: tuple[str, ...],
        latency: float,
        weight: float,
        tag: object,
        bytes_left: Callable[[Flow], float],
    ) -> None:
        super().__init__(env)
        self.id = number
        self.source = source
        self.target = target
        self.bytes = bytes
        self.started: float = env.now
        self.ended: float | None = None
        self.tag = tag
        self.path = path
        self.nodes = nodes
        self.latency = latency
        self.weight = weight
        self.multicast: int | None = None
        self.cancelled = False
        self._delivered = 0.0
        self._bytes_left = bytes_left

    @property
    def delivered(self) -> float:
        """Bytes that have arrived by now; the whole size once the flow has ended."""
        if self.ended is None:
            return max(self.bytes - self._bytes_left(self), 0.0)
        return self._delivered

    def settle(self, now: float, delivered: float, *, cancelled: bool) -> None:
        """Fix the flow's last figures; the network calls this once, when the flow ends."""
        self.ended = now
        self._delivered = delivered
        self.cancelled = cancelled

    def __repr__(self) -> str:
        return f"<Flow {self.id}: {self.source} to {self.target}, {self.bytes:g} bytes>"


class FlowObserver(Protocol):
    """What wants to know of flows and capacities, at the virtual instant at which it happens.

    A link's capacity is told before the first flow uses it, and again, while it carries flows, at every change. A
    change that meets an idle link may be told only when a flow next uses the link: it concerned nobody earlier.
    """

    def flow_started(self, flow: Flow) -> None:
        """A transfer has been asked for."""

    def flow_ended(self, flow: Flow) -> None:
        """A transfer is complete."""

    def flow_cancelled(self, flow: Flow) -> None:
        """A transfer was stopped; ``flow.delivered`` bytes had arrived."""

    def capacity_changed(self, source: Node, target: Node, bits_per_second: float) -> None:
        """The link from ``source`` to ``target`` has this capacity from now on."""

    def capacities_repeated(self, since: float, period: float, times: int) -> None:
        """What capacities and flows did in the ``period`` seconds from ``since`` on they did ``times`` more up to now.

        Told only where capacities follow looped traces of one period and a calm of thousands of changes was seen.
        """
