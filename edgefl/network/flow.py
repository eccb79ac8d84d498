"""The transfers of the simulated world, the interface of their observers, and the timer of the network's actions."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import EventPriority

from edgefl.network.capacities.base import CapacityProcess
from edgefl.network.fairness import Outlook
from edgefl.network.tcp import Opening
from edgefl.network.topology import Node, Route, Topology

What = TypeVar("What")
_LAST = EventPriority(2)  # after SimPy's URGENT (0) and NORMAL (1): all other events of that instant come first


class _Wake(simpy.Event):
    """An event that triggers after a delay and after all other events of its instant."""

    def __init__(self, env: simpy.Environment, call: Callable[[simpy.Event], None], value: int, delay: float) -> None:
        self.env = env
        self.callbacks = [call]
        self._ok = True
        self._value = value
        env.schedule(self, _LAST, delay)


class Agenda:
    """A list of actions and their times. SimPy holds one timer, for the first entry, however many entries there are.

    A timer that was replaced is ignored by its old token. ``settle(until, now)`` is called after the entries that are
    due, up to ``until``, and returns the time of its next call.
    """

    def __init__(self, env: simpy.Environment, settle: Callable[[float, float], float]) -> None:
        self._env, self._settle = env, settle
        self._entries: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = itertools.count()
        self._armed_for = math.inf
        self._token = 0

    def at(self, seconds: float, action: Callable[[What], None], what: What) -> None:
        """Call ``action(what)`` at a given time; if that is now, at the end of this instant."""
        heapq.heappush(self._entries, (seconds, next(self._order), action, what))
        if seconds < self._armed_for:
            self._arm(seconds, self._env.now)

    def settle_now(self) -> None:
        """Settle once at the end of this instant, however often this is called."""
        now = self._env.now
        if now < self._armed_for:
            self._arm(now, now)

    def _arm(self, seconds: float, now: float) -> None:
        """An earlier timer, if set, will call this again."""
        self._token += 1
        self._armed_for = seconds
        _Wake(self._env, self._wake, self._token, max(seconds - now, 0.0))

    def _wake(self, timer: simpy.Event) -> None:
        if timer.value != self._token:
            return  # an earlier timer has replaced this one
        self._armed_for = -math.inf  # the actions below set no timer; the call at the end sets the next one
        now = self._env.now
        # now + (t - now) may miss t by a rounding error, and the end of a flow may be so close after now that no float
        # is between them: both count as now. Otherwise timers of length zero could follow one another without end.
        # Relative to the time of day this is 1e-15, far below the promised 1e-9.
        until = now + 4.0 * math.ulp(now)
        while self._entries and self._entries[0][0] <= until:
            _, _, action, what = heapq.heappop(self._entries)
            action(what)
        following = self._settle(until, now)
        if self._entries:
            following = min(following, self._entries[0][0])
        self._armed_for = math.inf
        if following < math.inf:
            self._arm(following, now)


@dataclass(eq=False, repr=False)
class Flow(simpy.Event):
    """One transfer; an event that triggers, with the flow as its value, when the last byte has arrived."""

    env: simpy.Environment
    id: int
    source: Node
    target: Node
    bytes: float
    _: KW_ONLY
    path: tuple[int, ...]  # the links that it crosses, as indices of the network's link arrays
    nodes: tuple[str, ...]
    latency: float  # seconds before the first byte flows: the path's, and setup
    weight: float
    tag: Any
    bytes_left: Callable[[Flow], float]
    outlook: Outlook | None = None
    multicast: int | None = None
    setup: float = 0.0  # seconds of the latency that the set-up of a connection takes
    opening: Opening | None = None  # the state of its connection at its start; None without connections
    ended: float | None = None  # virtual time at which it was complete or cancelled, seconds
    cancelled: bool = False

    def __post_init__(self) -> None:
        super().__init__(self.env)
        self.started: float = self.env.now  # virtual time of the call, seconds
        self._delivered = 0.0

    @property
    def delivered(self) -> float:
        """Bytes that have arrived so far; the whole size once the flow has ended."""
        if self.ended is None:
            return max(self.bytes - self.bytes_left(self), 0.0)
        return self._delivered

    def settle(self, now: float, delivered: float, *, cancelled: bool) -> None:
        """Set the flow's final figures; called once, when the flow ends."""
        self.ended, self._delivered, self.cancelled = now, delivered, cancelled

    def __repr__(self) -> str:
        return f"<Flow {self.id}: {self.source} to {self.target}, {self.bytes:g} bytes>"


@dataclass(eq=False)
class Multicast:
    """Flows that carry the same payload from one node: a tree of links that carries it once, at one rate for all.

    The first byte flows (``starts``) when the longest latency of the members has passed, and all end at once. A
    cancelled member removes the links that only it used. ``key``: their source, time and payload.
    """

    id: int
    key: Hashable
    members: dict[int, Flow] = field(default_factory=dict)
    starts: float = 0.0
    joined: bool = False

    def add(self, flow: Flow) -> None:
        flow.multicast = self.id
        self.members[flow.id] = flow
        self.starts = max(self.starts, flow.started + flow.latency)

    @property
    def path(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(link for flow in self.members.values() for link in flow.path))

    @property
    def first(self) -> Flow:
        """A member; all members have its size, start and weight."""
        return next(iter(self.members.values()))


class Alone(NamedTuple):
    """A path that one transfer has to itself."""

    latency: float  # seconds before the first byte flows
    bits_per_second: float  # the rate of the transfer, after slow start; 0 where a link is down
    # the seconds from the first to the last byte, given the bytes; None if the rate does not change
    sending: Callable[[float], float] | None = None

    def seconds(self, bytes: float) -> float:
        """The seconds of a transfer; infinite if the rate is 0.

        >>> Alone(latency=0.02, bits_per_second=8e6).seconds(1_500_000)
        1.52
        """
        if self.sending is not None:
            return self.latency + self.sending(bytes)
        return self.latency + 8.0 * bytes / self.bits_per_second if self.bits_per_second > 0.0 else math.inf


class FlowObserver(Protocol):
    """An observer of flows and capacities; its methods are called at the virtual time of each change.

    A capacity is reported before a flow first uses the link and at each change of a busy one; that of an idle one late.
    """

    def flow_started(self, flow: Flow) -> None: ...
    def flow_ended(self, flow: Flow) -> None: ...
    def flow_cancelled(self, flow: Flow) -> None:
        """A transfer was stopped; ``flow.delivered`` bytes had arrived."""

    def capacity_changed(self, link: int, source: Node, target: Node, bits_per_second: float) -> None:
        """The ``link`` from ``source`` to ``target`` has this capacity from now on."""


class Network(Protocol):
    """Carries transfers; :class:`~edgefl.network.flow_network.FlowNetwork` computes when they end."""

    topology: Topology
    route: Callable[[Node, Node], Route]

    def transfer(
        self,
        source: Node,
        target: Node,
        bytes: float,
        *,
        tag: object = None,
        weight: float = 1.0,
        payload: Hashable = None,
        outlook: Outlook | None = None,
    ) -> Flow:
        """Send ``bytes`` over the least-latency path; the flow triggers when they have arrived."""

    def cancel(self, flow: Flow) -> None:
        """Stop a flow now; one that has ended does not change."""

    def set_capacities(self, links: NDArray[np.int64], bits_per_second: NDArray[np.float64]) -> None:
        """Change the capacities of links, given by number, from now on."""

    def follow(self, link: int, process: CapacityProcess) -> None:
        """Let the capacity of a link, given by number, follow a process from now on."""

    def begin_outage(self, link: int) -> None:
        """A link, given by number, has no capacity from now on; what sets its capacity takes effect afterwards."""

    def end_outage(self, link: int) -> None:
        """A link has the capacity again that it would have without its outage."""

    def end_process(self, node: Node) -> None:
        """A node's process ends now, with its connections; the caller then cancels its flows."""

    def begin_process(self, node: Node) -> None:
        """A node whose process has ended has a new one."""

    def capacity(self, source: Node, target: Node) -> float:
        """The present capacity of a link, bit/s."""

    def alone(self, source: Node, target: Node) -> Alone:
        """Each transfer as if it had the network to itself, at the present capacities."""
