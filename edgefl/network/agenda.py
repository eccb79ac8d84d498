"""One timer for all scheduled actions of the network."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import simpy
from simpy.events import EventPriority

What = TypeVar("What")
_LAST = EventPriority(2)  # after SimPy's URGENT (0) and NORMAL (1): all other events of that instant come first


class _Wake(simpy.Event):
    """An event that triggers after a delay and after all other events of its instant."""

    def __init__(
        self, env: simpy.Environment, callback: Callable[[simpy.Event], None], value: int, delay: float
    ) -> None:
        self.env = env
        self.callbacks = [callback]
        self._ok = True
        self._value = value
        env.schedule(self, _LAST, delay)


class Agenda:
    """A list of actions and their times. SimPy holds one timer, for the first entry, however many entries there are.

    A timer that an earlier one replaced stays in SimPy's queue and is ignored because of its old token: removing it
    would cost more. ``settle(until, now)`` is called each time after the entries that are due; everything up to
    ``until`` is due now. It returns the time of its next call.
    """

    def __init__(self, env: simpy.Environment, settle: Callable[[float, float], float]) -> None:
        self._env = env
        self._settle = settle
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
