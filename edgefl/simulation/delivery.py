"""Transfers from their request until everything has arrived, in one attempt or, after time-outs, in several."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import simpy

from edgefl.fleet import Direction
from edgefl.methods.parts.payload import Part
from edgefl.network.fairness import Outlook
from edgefl.network.flow import Flow, Network
from edgefl.network.topology import Node
from edgefl.network.transport import Timeouts
from edgefl.record.events import ABSENT
from edgefl.simulation.clock import Clock


class Transfer(NamedTuple):
    """The content of a transfer for the job ``dispatch`` of a client, which is -1 between the server and a cell."""

    client: int
    round: int
    dispatch: int
    direction: Direction
    parts: tuple[Part, ...]
    item: str


@dataclass(eq=False, repr=False)
class Delivery(simpy.Event):
    """One transfer; an event that triggers when the last byte has arrived, or when the last attempt has broken.

    Each attempt is a flow. Only attempts that break are repeated (see :class:`~edgefl.simulation.delivery.Attempts`).
    """

    env: simpy.Environment
    source: Node
    target: Node
    transfer: Transfer
    bytes: int
    outlook: Outlook | None = None  # what is known about its client's round, for a bandwidth allocation
    ended: float | None = None  # virtual time at which it was complete, failed or was cancelled, seconds
    failed: bool = False
    flow: Flow | None = None  # the attempt in progress; None before the next one begins
    first: int = ABSENT  # the number of the first attempt's flow, -1 during that attempt
    breaks: int = 0  # how many attempts have broken
    kept: int = 0  # the bytes of those that need not be sent again

    def __post_init__(self) -> None:
        super().__init__(self.env)
        self.started: float = self.env.now  # virtual time of the request, seconds

    def end(self, *, failed: bool = False) -> None:
        self.ended, self.failed, self.flow = self.env.now, failed, None
        self.succeed(self)

    def on_failure(self, call: Callable[[], None]) -> None:
        """Call a function when the last attempt has broken; no effect if the delivery is over."""
        if self.callbacks is not None:
            self.callbacks.append(lambda _: call() if self.failed else None)


class _Watch:
    """A flow, the time since when none of its bytes has moved, and whether all links of its path are up.

    ``moving`` is when its bytes began to move, or will; infinite while a link is down.
    """

    __slots__ = ("flow", "moving", "since", "up")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.since = flow.started
        self.moving = math.inf
        self.up = False


class Stalls:
    """Finds the flows of which no byte has moved for some time.

    No byte moves before a flow's latency has passed, nor while a link of its path has no capacity; with any capacity,
    sharing gives each flow a rate above 0. A time-out expires after all other events of its instant, so a byte that
    moves again at that instant prevents it.
    """

    def __init__(self, env: Clock, seconds: float, expired: Callable[[Flow], None]) -> None:
        self._env = env
        self._seconds = seconds
        self._expired = expired
        self._down: set[int] = set()
        self._by_link: dict[int, dict[int, _Watch]] = {}

    def watch(self, flow: Flow) -> None:
        watch = _Watch(flow)
        # Changes of its links are reported only from its first byte on, when it begins to use them. This alarm is set
        # first, so that a first byte at the very moment at which the time-out expires prevents it.
        self._env.alarm(flow.latency).callbacks.append(lambda _: self._joined(watch))
        self._arm(watch)

    def forget(self, flow: Flow) -> None:
        for link in flow.path:
            self._by_link.get(link, {}).pop(flow.id, None)

    def capacity_changed(self, link: int, bits_per_second: float) -> None:
        if bits_per_second > 0.0:
            self._down.discard(link)
        else:
            self._down.add(link)
        for watch in self._by_link.get(link, {}).values():
            self._look(watch)

    def _joined(self, watch: _Watch) -> None:
        flow = watch.flow
        if flow.ended is None:
            for link in flow.path:
                self._by_link.setdefault(link, {})[flow.id] = watch
            self._look(watch)

    def _look(self, watch: _Watch) -> None:
        now, up = self._env.now, self._down.isdisjoint(watch.flow.path)
        if up and not watch.up:
            watch.moving = now
        elif watch.up and not up:
            if now > watch.moving:
                watch.since = now
                self._arm(watch)
            watch.moving = math.inf
        watch.up = up

    def _arm(self, watch: _Watch) -> None:
        since = watch.since
        after = max(since + self._seconds - self._env.now, 0.0)
        self._env.alarm(after).callbacks.append(lambda _: self._due(watch, since))

    def _due(self, watch: _Watch, since: float) -> None:
        if watch.flow.ended is None and not watch.up and watch.since == since:
            self._expired(watch.flow)


Cause = Literal["connection", "transfer"]
"""The time-out that expired."""


Broke = Callable[[Delivery, Flow, Cause, int, float | None], None]
"""Called with a transfer, whose ``breaks`` and ``kept`` include this break, the attempt, the time-out that expired, the
bytes that the attempt delivered and that will be sent again, and the seconds until the next attempt; None if there is
none, so the transfer has failed."""


class Attempts:
    """Sends each transfer in as many attempts as it needs and may have.

    Each flow in the network has its :class:`Delivery` as its tag. ``broke`` is called for each attempt that has broken,
    before its transfer fails.
    """

    def __init__(self, env: Clock, network: Network, timeouts: Timeouts | None, seed: int, broke: Broke) -> None:
        self._env = env
        self._network = network
        self._timeouts = timeouts
        self._seed = seed
        self._broke = broke
        self._breaks: Counter[tuple[str, str, int, str]] = Counter()
        self._stalls: Stalls | None = None
        if timeouts is not None and timeouts.connection is not None:
            self._stalls = Stalls(env, timeouts.connection, lambda flow: self._break(flow, "connection"))

    def begin(self, delivery: Delivery) -> None:
        transfer, timeouts = delivery.transfer, self._timeouts
        # Other clients may receive the same parts; an update is unique.
        payload = transfer.parts if transfer.direction == "down" else None
        size, outlook = delivery.bytes - delivery.kept, delivery.outlook
        flow = self._network.transfer(
            delivery.source, delivery.target, size, tag=delivery, payload=payload, outlook=outlook
        )
        delivery.flow = flow
        if timeouts is not None and timeouts.transfer is not None:
            self._env.alarm(timeouts.transfer).callbacks.append(lambda _: self._break(flow, "transfer"))
        if self._stalls is not None:
            self._stalls.watch(flow)

    def cancel(self, delivery: Delivery) -> None:
        if delivery.ended is None:
            delivery.ended, flow = self._env.now, delivery.flow
            delivery.flow = None
            if flow is not None:
                self._network.cancel(flow)

    def flow_over(self, flow: Flow) -> None:
        if self._stalls is not None:
            self._stalls.forget(flow)

    def capacity_changed(self, link: int, bits_per_second: float) -> None:
        if self._stalls is not None:
            self._stalls.capacity_changed(link, bits_per_second)

    def _break(self, flow: Flow, cause: Cause) -> None:
        delivery, timeouts = flow.tag, self._timeouts
        if flow.ended is not None:
            return
        assert isinstance(delivery, Delivery)
        assert timeouts is not None
        delivery.flow = None
        self._network.cancel(flow)
        delivered = delivery.kept + whole_bytes(flow)
        delivery.kept = timeouts.kept(delivered)
        delivery.breaks += 1
        if delivery.breaks == 1:
            delivery.first = flow.id
        wait = self._wait(delivery, timeouts) if delivery.breaks <= timeouts.retries else None
        self._broke(delivery, flow, cause, delivered - delivery.kept, wait)
        if wait is None:
            delivery.end(failed=True)
        else:
            self._env.timeout(wait).callbacks.append(lambda _: self._repeat(delivery))

    def _wait(self, delivery: Delivery, timeouts: Timeouts) -> float:
        transfer = delivery.transfer
        place = (str(delivery.source), str(delivery.target), transfer.round, transfer.item)
        self._breaks[place] += 1
        return timeouts.wait(delivery.breaks, self._seed, *place, self._breaks[place])

    def _repeat(self, delivery: Delivery) -> None:
        if delivery.ended is None:
            self.begin(delivery)


def whole_bytes(flow: Flow) -> int:
    """The bytes that a flow has delivered; parts are whole bytes, and of an aborted flow only whole bytes count."""
    return int(flow.delivered + 1e-6)
