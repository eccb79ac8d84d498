"""The computations of a log, each with its pace from the seed's draws and the device's thermal throttling."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from edgefl.fleet import DeviceProfile, Pace, Slowdown
from edgefl.record.events import Event, WorkKey
from edgefl.simulation.invariants.record import Record

ENDS = ("compute_end", "compute_partial", "compute_drop")


class Computation(NamedTuple):
    """One computation that has ended.

    Attributes:
        end: the row of its end.
        work: the row of its work; ``None`` if the log has none.
        pace: its pace from the draws; ``None`` if the work is unknown.
        steps: the number of local steps at its start.
        again: the number of earlier computations of its client in that round.
    """

    end: Event
    work: Event | None
    pace: Pace | None
    steps: float
    again: int

    @property
    def planned_seconds(self) -> float:
        """Its planned duration."""
        if self.work is None or self.pace is None:
            return math.nan
        return self.pace.until(self.steps / self.work.value) if self.steps < self.work.value else self.pace.seconds


def computations(record: Record) -> Iterator[Computation]:
    """Yield every computation, in the order of their ends."""
    slowdown = Slowdown(record.fleet, record.summary.seed)
    works: dict[WorkKey, Event] = {}
    begun: Counter[tuple[int, int]] = Counter()
    under_way: dict[int, Event] = {}
    for event in record.events:
        if event.kind == "work":
            works[event.work] = event
        elif event.kind == "compute_start":
            under_way[event.client] = event
            begun[event.client, event.round] += 1
        elif event.kind in ENDS:
            start = under_way.pop(event.client, None)
            work = works.get(event.work) if 0 <= event.client < len(record.fleet.group) else None
            again = max(begun[event.client, event.round] - 1, 0)
            pace = None
            if work is not None:
                factor = float(slowdown.of(event.round - 1, again)[event.client])
                pace = _pace(record, event, work, factor)
            yield Computation(event, work, pace, math.nan if start is None else start.value, again)


def _pace(record: Record, event: Event, work: Event, factor: float) -> Pace:
    """Return the progress of the work if computing takes ``factor`` times as long, with the profile's throttling."""
    if record.seconds is not None:
        seconds = float(record.seconds.of(event.round - 1)[event.client]) * factor
        return Pace(seconds, seconds)
    profile: DeviceProfile = record.fleet.profile_of(event.client)
    thermal = profile.compute.thermal
    hot = work.facts.get("hot_seconds")
    hot_seconds = float(hot) if isinstance(hot, int | float) else math.nan
    return Pace(work.seconds * factor, hot_seconds * factor, math.inf if thermal is None else thermal.after)
