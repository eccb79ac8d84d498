"""Skip whole periods of looped traces while nothing but the traces changes.

If all changing capacities have one period, and no flow starts or ends, a flow gets the same bits in every period. So
once one period has been simulated, the next ones can be skipped: a transfer that lasts for years over a trace of
seconds takes as long to compute as one of minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import simpy

from edgefl.network.agenda import Agenda
from edgefl.network.bundle import Stream
from edgefl.network.processes import CapacityProcess
from edgefl.network.sharing import Sharing

_PATIENCE = 5000
"""Changes in succession without other events before a period is watched: most transfers end long before."""


class Repetition:
    """Detects a period without other events, and skips its repetitions.

    Args:
        env: the clock; its next event limits what can be skipped.
        agenda: the network's agenda.
        sharing: the flows.
        following: the processes of busy links, whose next changes are on the agenda.
        change: the agenda's action for those changes.
        on_skip: called with the time at which the repeating period began, its length, and how often it was skipped.
    """

    def __init__(
        self,
        env: simpy.Environment,
        agenda: Agenda,
        sharing: Sharing,
        *,
        following: dict[int, CapacityProcess],
        change: Callable[[Any], None],
        on_skip: Callable[[float, float, int], None],
    ) -> None:
        self._env, self._agenda, self._sharing = env, agenda, sharing
        self._following, self._change, self._on_skip = following, change, on_skip
        self._changes = 0
        self._watch = 0

    def disturbed(self) -> None:
        """A flow started or ended, or a capacity was set: the observed period is discarded."""
        self._changes = 0
        self._watch += 1

    def changed(self) -> None:
        """A process has changed a capacity."""
        self._changes += 1
        if self._changes == _PATIENCE:
            now = self._env.now
            period = _common_period(self._following.values())
            gap = min((process.next_change(now) - now for process in self._following.values()), default=math.inf)
            # Begin between two changes, where rounding cannot confuse two steps.
            if period is not None and gap > 1e-6 * period:
                self._agenda.at(now + gap / 2, self._begin, (self._watch, period))
            else:
                self._changes = 0

    def _begin(self, what: tuple[int, float]) -> None:
        watch, period = what
        if watch == self._watch:
            now = self._env.now
            self._agenda.at(now + period, self._end, (watch, period, now, self._sharing.all_bits_left(now)))

    def _end(self, what: tuple[int, float, float, Mapping[int, float]]) -> None:
        watch, period, since, before = what
        if watch != self._watch:
            return
        self._changes = 0
        now = self._env.now
        left = self._sharing.all_bits_left(now)
        got = {flow: before[flow] - bits for flow, bits in left.items()}
        horizon = min(self._env.peek(), self._agenda.first_but(self._change))
        lasting = min((left[flow] / bits for flow, bits in got.items() if bits > 0.0), default=0.0)
        # One period less than would fit: ends and other events are then handled in the ordinary way.
        times = math.floor(min(lasting, (horizon - now) / period)) - 1
        if times < 1:
            return
        self._agenda.forget(self._change)
        self._following.clear()
        streams = self._sharing.suspend(now)
        for stream in streams:
            stream.left = left[stream.flow] - times * got[stream.flow]
        self._agenda.at(now + times * period, self._resume, (since, period, times, streams))

    def _resume(self, what: tuple[float, float, int, Collection[Stream]]) -> None:
        since, period, times, streams = what
        self._on_skip(since, period, times)
        self._sharing.resume(streams, self._env.now)


def _common_period(processes: Collection[CapacityProcess]) -> float | None:
    """The period that all of them share; None if one of them has a different period or no period."""
    periods = {getattr(process, "period", math.inf) for process in processes}
    period = periods.pop() if len(periods) == 1 else math.inf
    return period if period < math.inf else None
