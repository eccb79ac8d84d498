"""Recurring intervals of time in which devices are available, as arrays; each row is one list of intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Windows:
    """For each row the intervals [start, end) in which a device is available; each row repeats with its own period.

    Attributes:
        starts, ends: concatenation of all rows, in seconds, ascending within a row, within [0, period].
        offsets: the start of each row in them, shape ``[rows + 1]``.
        periods: seconds after which each row repeats, shape ``[rows]``.
    """

    starts: Numbers
    ends: Numbers
    offsets: NDArray[np.int64]
    periods: Numbers

    @staticmethod
    def of(rows: Sequence[tuple[Sequence[float], Sequence[float], float]]) -> Windows:
        """Windows from (starts, ends, period) of each row."""
        lengths = [len(starts) for starts, _, _ in rows]
        return Windows(
            np.array([start for starts, _, _ in rows for start in starts], np.float64),
            np.array([end for _, ends, _ in rows for end in ends], np.float64),
            np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
            np.array([period for _, _, period in rows], np.float64),
        )

    def state(self, rows: NDArray[np.int64], seconds: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
        """Whether each of these rows is available at its own time, and for how many seconds this does not change.

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
        """For each row its available seconds from the time 0 to its own time, which may be negative."""
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
