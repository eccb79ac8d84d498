"""Finds transfers that stand still, for the time-out of a connection."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from edgefl.network.flow import Flow
from edgefl.simulation.clock import Clock


@dataclass
class _Watch:
    flow: Flow
    since: float  # when one of its bytes moved last
    moving: float = math.inf  # when its bytes began to move, or will; infinite while a link is down
    up: bool = False  # whether all links of its path are


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
        self._watches: dict[int, _Watch] = {}

    def watch(self, flow: Flow) -> None:
        watch = _Watch(flow, flow.started)
        # Changes of its links are reported only from its first byte on, when it begins to use them. This alarm is set
        # first, so that a first byte at the very moment at which the time-out expires prevents it.
        self._env.alarm(flow.latency).callbacks.append(lambda _: self._joined(watch))
        self._arm(watch)

    def forget(self, flow: Flow) -> None:
        self._watches.pop(flow.id, None)

    def capacity_changed(self, link: int, bits_per_second: float) -> None:
        if bits_per_second > 0.0:
            self._down.discard(link)
        else:
            self._down.add(link)
        for watch in self._watches.values():
            if link in watch.flow.path:
                self._look(watch)

    def _joined(self, watch: _Watch) -> None:
        if watch.flow.ended is None:
            self._watches[watch.flow.id] = watch
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
