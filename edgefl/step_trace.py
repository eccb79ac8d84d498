"""A step function of time that may repeat: the capacity of a link, or a price."""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Sequence

import numpy as np


class StepTrace:
    """A capacity, or a price, that is constant from each of the given times to the next.

    Args:
        times: rising times in seconds, the first one 0.
        bits_per_second: the capacity, or the price in its unit, from each of them on.
        period: if given, the trace repeats without end after that many seconds; else the last value stays.

    >>> trace = StepTrace([0.0, 1.0], [8e6, 0.0], period=3.0)
    >>> [trace.value(t) for t in (0.5, 1.0, 2.9, 3.0)], trace.next_change(1.0)
    ([8000000.0, 0.0, 0.0, 8000000.0], 3.0)
    """

    def __init__(
        self, times: Sequence[float], bits_per_second: Sequence[float], *, period: float | None = None
    ) -> None:
        ends = [*times[1:], *([] if period is None else [period])]
        # The longest time for which one given value is valid.
        self.longest = max((end - start for start, end in zip(times, ends, strict=False)), default=math.inf)
        # Equal neighbours are merged: a change to the same value would only cause useless work in the network.
        kept = [0, *(i for i in range(1, len(times)) if bits_per_second[i] != bits_per_second[i - 1])]
        self.times = [float(times[i]) for i in kept]
        self.rates = [float(bits_per_second[i]) for i in kept]
        self.period = math.inf if period is None else float(period)
        self.offset = 0.0  # seconds of the trace before the start of the simulation

    def shifted(self, seconds: float) -> StepTrace:
        other = copy.copy(self)
        other.offset = self.offset + seconds
        return other

    def scaled(self, factor: float) -> StepTrace:
        other = copy.copy(self)
        other.rates = [rate * factor for rate in self.rates]
        return other

    def value(self, seconds: float) -> float:
        return self.rates[self._find(seconds)[1]]

    def next_change(self, seconds: float) -> float:
        if len(self.times) == 1:
            return math.inf
        return self._moment(*self._following(*self._find(seconds)))

    def mean(self) -> float:
        """The mean capacity over one period, bit/s."""
        return float(np.dot(np.diff([*self.times, self.period]), self.rates) / self.period)

    def _find(self, seconds: float) -> tuple[int, int]:
        """The cycle, and the step in it, at this time.

        The time of a change is always computed by the same expression (:meth:`_moment`), and the step found here
        encloses ``seconds`` exactly. Otherwise rounding could return the same change as the next one repeatedly, and
        time would not advance.
        """
        cycle = 0 if self.period == math.inf else math.floor((seconds + self.offset) / self.period)
        phase = seconds + self.offset - (cycle * self.period if cycle else 0.0)
        step = max(bisect.bisect_right(self.times, phase) - 1, 0)
        while self._moment(cycle, step) > seconds and (cycle, step) > (0, 0):
            cycle, step = (cycle, step - 1) if step else (cycle - 1, len(self.times) - 1)
        while self._moment(*self._following(cycle, step)) <= seconds:
            cycle, step = self._following(cycle, step)
        return cycle, step

    def _following(self, cycle: int, step: int) -> tuple[int, int]:
        return (cycle, step + 1) if step + 1 < len(self.times) else (cycle + 1, 0)

    def _moment(self, cycle: int, step: int) -> float:
        return (cycle * self.period if cycle else 0.0) + self.times[step] - self.offset
