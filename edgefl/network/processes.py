"""Capacities that change over time: piecewise-constant functions of virtual time, evaluated only when used."""

from __future__ import annotations

import bisect
import copy
import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError


class CapacityProcess(Protocol):
    """A capacity over time. It is evaluated at each change of a busy link, and never for an idle link."""

    def value(self, seconds: float) -> float:
        """The capacity at this time, bit/s (the new one at a change: the function is right-continuous)."""

    def next_change(self, seconds: float) -> float:
        """The first moment after ``seconds`` at which the capacity may change; infinite where it never does."""


class StepTrace:
    """A capacity that is constant from each of the given times to the next.

    Args:
        times: rising times in seconds, the first one 0.
        bits_per_second: the capacity from each of them on.
        period: if given, the trace repeats without end after that many seconds; else the last value stays.
        offset: seconds of the trace before the start of the simulation.

    Raises:
        UserError: times that do not rise from 0, a negative rate, or a period that does not exceed the last time.

    >>> trace = StepTrace([0.0, 1.0], [8e6, 0.0], period=3.0)
    >>> [trace.value(t) for t in (0.5, 1.0, 2.9, 3.0)], trace.next_change(1.0)
    ([8000000.0, 0.0, 0.0, 8000000.0], 3.0)
    """

    def __init__(
        self,
        times: Sequence[float],
        bits_per_second: Sequence[float],
        *,
        period: float | None = None,
        offset: float = 0.0,
    ) -> None:
        if not len(times) or len(times) != len(bits_per_second):
            raise UserError(f"expected a rate for each time, found {len(times)} times, {len(bits_per_second)} rates")
        if times[0] != 0 or any(later <= earlier for earlier, later in itertools.pairwise(times)):
            raise UserError("expected times that begin at 0 and rise")
        if not all(0 <= rate < math.inf for rate in bits_per_second):
            raise UserError("expected finite rates of at least 0 bit/s")
        if period is not None and not times[-1] < period < math.inf:
            raise UserError(f"expected a period above the last time, {times[-1]} s, found {period}")
        # Equal neighbours are merged: a change to the same value would only cause useless work in the network.
        kept = [0, *(i for i in range(1, len(times)) if bits_per_second[i] != bits_per_second[i - 1])]
        self.times = [float(times[i]) for i in kept]
        self.rates = [float(bits_per_second[i]) for i in kept]
        self.period = math.inf if period is None else float(period)
        self.offset = offset

    def shifted(self, seconds: float) -> StepTrace:
        """The same trace, shifted by ``seconds``; the arrays are shared."""
        other = copy.copy(self)
        other.offset = self.offset + seconds
        return other

    def scaled(self, factor: float) -> StepTrace:
        """The same trace with every rate multiplied by ``factor``; its times are shared."""
        other = copy.copy(self)
        other.rates = [rate * factor for rate in self.rates]
        return other

    def value(self, seconds: float) -> float:
        """The capacity at this moment, bit/s."""
        return self.rates[self._find(seconds)[1]]

    def next_change(self, seconds: float) -> float:
        """The next moment at which the capacity changes; infinite for a constant or after the end."""
        if len(self.times) == 1:
            return math.inf
        return self._moment(*self._following(*self._find(seconds)))

    def mean(self) -> float:
        """The mean capacity over one period, bit/s."""
        return float(np.dot(np.diff([*self.times, self.period]), self.rates) / self.period)

    def _find(self, seconds: float) -> tuple[int, int]:
        """The cycle, and the step in it, at this time.

        The time of a change is always computed by the same expression (:meth:`_moment`), and the step found here is the
        one whose times enclose ``seconds`` exactly. Otherwise rounding could return the same change as the next one
        repeatedly, and time would not advance.
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


class SteppedSeries(Protocol):
    """Capacities of many clients that change together, every ``step`` seconds."""

    step: float

    def at_step(self, number: int) -> NDArray[np.float64]:
        """All clients' capacities during step ``number`` (from 0), bit/s."""


class SteppedProcess:
    """One client's view of a :class:`SteppedSeries`."""

    __slots__ = ("_client", "_series")

    def __init__(self, series: SteppedSeries, client: int) -> None:
        self._series = series
        self._client = client

    def value(self, seconds: float) -> float:
        """The capacity at this moment, bit/s."""
        return float(self._series.at_step(self._number(seconds))[self._client])

    def next_change(self, seconds: float) -> float:
        """The end of the present step, or of all steps that are shorter than the resolution of a float at that time."""
        return max((self._number(seconds) + 1) * self._series.step, math.nextafter(seconds, math.inf))

    def _number(self, seconds: float) -> int:
        step = self._series.step
        number = int(seconds / step)
        # Steps begin at the rounded value of number * step; the quotient may be off by one.
        if (number + 1) * step <= seconds:
            return number + 1
        return number - 1 if number * step > seconds else number
