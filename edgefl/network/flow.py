"""The transfers of the simulated world, and the interface of their observers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import simpy

from edgefl.network.allotment import Outlook
from edgefl.network.tcp import Opening

Node = Hashable
"""A node of the topology: ``"server"``, ``"client/17"``, or any node of the user's graph."""


class Flow(simpy.Event):
    """One transfer; an event that triggers, with the flow as its value, when the last byte has arrived.

    Attributes:
        id: 0, 1, 2, … in the order of start.
        source: the sending node.
        target: the receiving node.
        bytes: the size.
        started: virtual time of the call, seconds.
        ended: virtual time at which it was complete or cancelled, seconds; None while it is in progress.
        tag: any object that the caller attached.
        path: the links that it crosses, as indices of the network's link arrays.
        nodes: the names of the nodes on its path, the source first.
        latency: seconds before the first byte flows: the path's latency under the transport model, and ``setup``.
        setup: seconds of it that the set-up of a connection takes.
        opening: the state of its connection at its start; None without connections.
        losses: virtual times at which expected losses change its rate.
        weight: its share of a contended link relative to flows of weight 1.
        outlook: what is known about its client's round, for an allocator.
        multicast: the number of the multicast that it is part of, None for a single flow.
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
        self.outlook: Outlook | None = None
        self.multicast: int | None = None
        self.setup = 0.0
        self.opening: Opening | None = None
        self.losses: list[float] = []
        self.cancelled = False
        self._delivered = 0.0
        self._bytes_left = bytes_left

    @property
    def delivered(self) -> float:
        """Bytes that have arrived so far; the whole size once the flow has ended."""
        if self.ended is None:
            return max(self.bytes - self._bytes_left(self), 0.0)
        return self._delivered

    def settle(self, now: float, delivered: float, *, cancelled: bool) -> None:
        """Set the flow's final figures; the network calls this once, when the flow ends."""
        self.ended = now
        self._delivered = delivered
        self.cancelled = cancelled

    def __repr__(self) -> str:
        return f"<Flow {self.id}: {self.source} to {self.target}, {self.bytes:g} bytes>"


class FlowObserver(Protocol):
    """An observer of flows and capacities; its methods are called at the virtual time of each change.

    A link's capacity is reported before the first flow uses it and, while it carries flows, at every change. A change
    of an idle link may be reported only when a flow next uses the link, because no flow depends on it earlier.
    """

    def flow_started(self, flow: Flow) -> None:
        """A transfer was requested."""

    def flow_ended(self, flow: Flow) -> None:
        """A transfer is complete."""

    def flow_cancelled(self, flow: Flow) -> None:
        """A transfer was stopped; ``flow.delivered`` bytes had arrived."""

    def progress_measured(self, flow: Flow, bytes: float) -> None:
        """So many bytes of a transfer in progress have arrived over real links; computed networks do not call this."""

    def capacity_changed(self, source: Node, target: Node, bits_per_second: float) -> None:
        """The link from ``source`` to ``target`` has this capacity from now on."""

    def capacities_repeated(self, since: float, period: float, times: int) -> None:
        """The changes in the ``period`` seconds from ``since`` have repeated ``times`` more until now.

        Called only where capacities follow looped traces of one period, after thousands of changes without other
        events.
        """
