"""When a device can take part: always, according to a trace of real devices, or in a synthetic daily rhythm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.files import read_json
from edgefl.input_file import InputFile, digest_of_file, find_input
from edgefl.options import Options
from edgefl.units import Seconds, at_most, slack

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Windows:
    """For each row the intervals [start, end) in which a device is available; each row repeats with its own period."""

    # starts, ends: concatenation of all rows, in seconds, ascending within a row, within [0, period]
    starts: Numbers
    ends: Numbers
    offsets: NDArray[np.int64]  # the start of each row in them, shape [rows + 1]
    periods: Numbers  # seconds, shape [rows]

    @staticmethod
    def of(rows: Sequence[tuple[Sequence[float], Sequence[float], float]]) -> Windows:
        """Windows from (starts, ends, period) of each row.

        >>> Windows.of([((10.0, 30.0, 50.0), (30.0, 30.0, 60.0), 100.0)]).starts.tolist()  # one has no length
        [10.0, 50.0]
        """
        starts = np.concatenate([starts for starts, _, _ in rows], dtype=np.float64)
        ends = np.concatenate([ends for _, ends, _ in rows], dtype=np.float64)
        row = np.repeat(np.arange(len(rows)), [len(starts) for starts, _, _ in rows])
        kept = ends - starts > slack(0.0)
        return Windows(
            starts[kept],
            ends[kept],
            np.searchsorted(row[kept], np.arange(len(rows) + 1)),
            np.array([period for _, _, period in rows], np.float64),
        )

    def state(self, rows: NDArray[np.int64], seconds: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
        """For each of these rows: availability at its own time, and the seconds for which this does not change.

        For a row that is always or never available, the seconds are infinite.

        >>> windows = Windows.of([((10.0, 50.0), (20.0, 60.0), 100.0)])
        >>> there, for_seconds = windows.state(np.array([0, 0, 0]), np.array([15.0, 95.0, 260.0]))
        >>> there.tolist(), for_seconds.tolist()
        ([True, False, False], [5.0, 15.0, 50.0])
        """
        period = self.periods[rows]
        local = np.mod(seconds, period)
        if not len(self.starts):
            return np.zeros(len(rows), np.bool_), np.full(len(rows), math.inf)
        first, last = self.offsets[rows], self.offsets[rows + 1]
        place = self._windows_begun(first, last, local)  # the window before this index is the latest that has begun
        end = np.where(place > first, self.ends[np.maximum(place - 1, 0)], -1.0)
        there = local < end
        final = len(self.starts) - 1
        opening, following = self.starts[np.minimum(first, final)], self.starts[np.minimum(place, final)]
        away_for = np.where(place < last, following - local, opening + period - local)
        stays = np.where(there, end - local, np.where(last > first, away_for, math.inf))
        # A window at the end of the period continues if the next period begins with a window.
        closing = self.ends[np.minimum(first, final)]
        continues = there & (end >= period) & (opening <= 0)
        return there, np.where(continues, np.where(closing >= period, math.inf, stays + closing), stays)

    def share(self, rows: NDArray[np.int64], begin: Numbers, end: Numbers) -> Numbers:
        """The part of the time from ``begin`` to ``end``, which is later, in which each of these rows is available.

        >>> windows = Windows.of([((10.0, 50.0), (20.0, 60.0), 100.0)])
        >>> windows.share(np.array([0, 0]), np.array([15.0, 0.0]), np.array([55.0, 200.0])).tolist()
        [0.25, 0.2]
        """
        return np.clip((self._available_until(rows, end) - self._available_until(rows, begin)) / (end - begin), 0, 1)

    def _available_until(self, rows: NDArray[np.int64], seconds: Numbers) -> Numbers:
        """Available seconds of each row from the time 0 to its own time, which may be negative."""
        if not len(self.starts):
            return np.zeros(len(rows))
        whole, local = np.divmod(seconds, self.periods[rows])
        first, last = self.offsets[rows], self.offsets[rows + 1]
        place = self._windows_begun(first, last, local)
        before = np.concatenate(([0.0], np.cumsum(self.ends - self.starts)))
        latest = np.maximum(place - 1, 0)
        not_yet = np.where(place > first, np.maximum(self.ends[latest] - local, 0.0), 0.0)
        return np.asarray(whole * (before[last] - before[first]) + before[place] - before[first] - not_yet)

    def _windows_begun(self, first: NDArray[np.int64], last: NDArray[np.int64], local: Numbers) -> NDArray[np.int64]:
        """For each row the index after its last window that has begun, by a binary search in all rows at once."""
        low, high = first.copy(), last.copy()
        while (low < high).any():
            middle = (low + high) // 2
            open_still = low < high
            begun = open_still & (self.starts[np.minimum(middle, len(self.starts) - 1)] <= local)
            low = np.where(begun, middle + 1, low)
            high = np.where(open_still & ~begun, middle, high)
        return low


def joined(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times as spans that do not overlap, in order.

    >>> joined([(5.0, 7.0), (1.0, 3.0), (2.0, 4.0)])
    [(1.0, 4.0), (5.0, 7.0)]
    """
    found: list[tuple[float, float]] = []
    for began, ended in sorted(spans):
        if found and at_most(began, found[-1][1]):
            found[-1] = (found[-1][0], max(ended, found[-1][1]))
        else:
            found.append((began, ended))
    return found


DAY = 86400.0
LEAST_PERIOD_SECONDS, MOST_PERIOD_SECONDS = 1.0, 1e8
"""A trace with a shorter period would change so often that simulated time hardly advances; longer ones are none."""


class Always(Options):
    """The device can always take part."""

    kind: Literal["always"] = Field(default="always", description="always: it can always take part")


class Trace(Options):
    """Each device follows one row of a trace of real devices, with its own start time."""

    kind: Literal["trace"] = Field(description="trace: intervals recorded from real devices")
    file: InputFile = Field(description="JSON: one {duration, active, inactive, finish_time} for each recorded device.")
    shift: bool = Field(default=True, description="Each device starts at a random time within its row's period.")

    def windows(self, clients: int, draws: np.random.Generator) -> tuple[Windows, NDArray[np.int64], NDArray[Any]]:
        """The windows, each client's row, with as few repetitions as possible, and how far ahead its clock is."""
        windows = read_trace(self.file)
        count = len(windows.periods)
        decks = [draws.permutation(count) for _ in range(-(-clients // count))]
        rows = np.concatenate(decks)[:clients].astype(np.int64)
        shifts = draws.random(clients) * windows.periods[rows]
        return windows, rows, shifts if self.shift else np.zeros(clients)


class Diurnal(Options):
    """A synthetic rhythm, not a measurement: once a day around one hour, as phones that charge at night."""

    kind: Literal["diurnal"] = Field(description="diurnal: a seeded synthetic daily rhythm, not a measurement")
    share: float = Field(default=0.35, gt=0, le=0.9, description="Part of the day that a device can take part.")
    peak: Seconds = Field(2 * 3600.0, description="Time of day around which most devices can take part.")
    spread: Seconds = Field(default=3 * 3600.0, description="Standard deviation of this time between devices.")
    wander: Seconds = Field(3600.0, description="Standard deviation of both ends of the interval from day to day.")
    days: int = Field(default=7, ge=1, le=366, description="Number of days that are drawn; then they repeat.")

    def windows(self, clients: int, draws: np.random.Generator) -> tuple[Windows, NDArray[np.int64], NDArray[Any]]:
        """Every client has its own row."""
        # In a device's local day the window is around noon, so that midnight does not cut it.
        middle = DAY * (np.arange(self.days) + 0.5)
        ends = middle + self.share * DAY / 2 + self.wander * draws.standard_normal((clients, self.days))
        starts = middle - self.share * DAY / 2 + self.wander * draws.standard_normal((clients, self.days))
        edges = DAY * np.arange(self.days)
        starts = np.clip(starts, edges, edges + DAY)
        ends = np.clip(np.maximum(ends, starts), edges, edges + DAY)
        windows = Windows.of([(*row, self.days * DAY) for row in zip(starts, ends, strict=True)])
        shifts = DAY / 2 - self.peak + self.spread * draws.standard_normal(clients)
        return windows, np.arange(clients, dtype=np.int64), shifts


AnyAvailability = Annotated[Always | Trace | Diurnal, Field(discriminator="kind")]


def read_trace(file: str) -> Windows:
    """An availability trace in the form that FedScale documents.

    The file contains one object for each device, in a list or under any keys: ``active`` and ``inactive`` are the
    seconds at which the device becomes available and unavailable, within ``finish_time`` seconds, after which the trace
    repeats; ``duration`` is the total available time. The first window may lack its beginning, or the last its end.
    Windows may overlap, and those without length are none. Files are also searched in EDGEFL_DATA.
    """
    path = find_input(file)
    return _read(str(path), digest_of_file(path))


@lru_cache(maxsize=4)
def _read(path: str, _digest: str) -> Windows:
    """The digest is part of the cache key because the file may change during the process."""
    data = read_json(path)
    devices = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
    if not devices:
        raise UserError("expected a list or a mapping of devices, found none", file=path)
    return Windows.of([_row(path, str(name), device) for name, device in devices.items()])


def _row(path: str, name: str, device: Any) -> tuple[list[float], list[float], float]:
    try:
        period = _seconds(device["finish_time"])
        starts, ends = ([_seconds(each) for each in device[key]] for key in ("active", "inactive"))
    except (KeyError, TypeError):
        message = "expected {duration, active: [seconds, …], inactive: [seconds, …], finish_time: seconds}"
        raise UserError(message, file=path, field=name) from None
    if len(starts) == len(ends) + 1:  # still there when the recording ended
        ends.append(period)
    elif len(ends) == len(starts) + 1:  # there when it began
        starts.insert(0, 0.0)
    problem = ""
    if len(starts) != len(ends):
        problem = f"as many times in active as in inactive, found {len(starts)} and {len(ends)}"
    elif not period >= LEAST_PERIOD_SECONDS:
        problem = f"a finish_time of {LEAST_PERIOD_SECONDS:g} s or more, found {period:g}"
    elif not period <= MOST_PERIOD_SECONDS:
        problem = f"a finish_time of three years at most, found {period:g} s; are the times milliseconds?"
    else:
        for start, end in zip(starts, ends, strict=True):
            if not 0 <= start <= end <= period:
                problem = f"windows that end after they begin, within {period:g} s, found {start:g}-{end:g}"
    if problem:
        raise UserError(f"expected {problem}", file=path, field=name)
    spans = joined(zip(starts, ends, strict=True))
    return [start for start, _ in spans], [end for _, end in spans], period


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)
