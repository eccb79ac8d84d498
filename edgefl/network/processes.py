"""Capacities that change over time: piecewise-constant functions of virtual time, evaluated only when used."""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.randomness import generator


class CapacityProcess(Protocol):
    """A capacity over time. It is evaluated at each change of a busy link, and never for an idle link."""

    def value(self, seconds: float) -> float:
        """The capacity at this time, bit/s (the new one at a change: the function is right-continuous)."""

    def next_change(self, seconds: float) -> float:
        """The first moment after ``seconds`` at which the capacity may change; infinite if it never does."""


class StepTrace:
    """A capacity that is constant from each of the given times to the next.

    Args:
        times: rising times in seconds, the first one 0.
        bits_per_second: the capacity from each of them on.
        period: if given, the trace repeats without end after that many seconds; else the last value stays.
        offset: seconds of the trace before the start of the simulation.

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
        ends = [*times[1:], *([] if period is None else [period])]
        # The longest time for which one given value is valid.
        self.longest = max((end - start for start, end in zip(times, ends, strict=False)), default=math.inf)
        # Equal neighbours are merged: a change to the same value would only cause useless work in the network.
        kept = [0, *(i for i in range(1, len(times)) if bits_per_second[i] != bits_per_second[i - 1])]
        self.times = [float(times[i]) for i in kept]
        self.rates = [float(bits_per_second[i]) for i in kept]
        self.period = math.inf if period is None else float(period)
        self.offset = offset

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


class SteppedProcess:
    """One client's row of capacities that change together, every ``step`` seconds.

    ``at_step`` returns all clients' capacities during a step (from 0), bit/s.
    """

    __slots__ = ("_at_step", "_client", "_step")

    def __init__(self, step: float, at_step: Callable[[int], NDArray[np.float64]], client: int) -> None:
        self._step, self._at_step, self._client = step, at_step, client

    def value(self, seconds: float) -> float:
        return float(self._at_step(self._number(seconds))[self._client])

    def next_change(self, seconds: float) -> float:
        """The end of the present step, or of all steps shorter than the resolution of a float at that time."""
        return max((self._number(seconds) + 1) * self._step, math.nextafter(seconds, math.inf))

    def _number(self, seconds: float) -> int:
        step = self._step
        number = int(seconds / step)
        # Steps begin at the rounded value of number * step; the quotient may be off by one.
        if (number + 1) * step <= seconds:
            return number + 1
        return number - 1 if number * step > seconds else number


_EPOCH = 2**14
"""Steps after which a series restarts in its stationary distribution; 4.5 hours with steps of one second."""


class GeneratedRates:
    """The capacities of all clients on one link in one direction: measured quantiles, correlated in time, with outages.

    Each capacity steps at fixed intervals. A Gaussian AR(1) series gives the correlation, the quantile function turns
    its ranks into rates, and a two-state Markov chain switches the link off and on. All clients of a link advance
    together, with one keyed stream for each step, so no client's series depends on the order of calls. At fixed
    intervals the series restarts independently of its past, so that a link that was idle for years does not require all
    steps in between.

    >>> rates = GeneratedRates(0, "5g down", 3, quantiles={0: 1e6, 100: 9e6}, step=1.0, correlation=0.7)
    >>> client = rates.process(2)
    >>> client.next_change(0.25), 1e6 <= client.value(0.25) <= 9e6
    (1.0, True)
    """

    def __init__(
        self,
        seed: int,
        name: str,  # the link's name and direction
        clients: int,
        *,
        # percent (0 to 100) to bit/s, at least two, rising; linear in between, flat outside
        quantiles: Mapping[float, float],
        step: float,  # seconds for which a value is valid
        correlation: float,  # lag-1 autocorrelation of the Gaussian series, in [0, 1)
        # mean seconds between the end of an outage and the next one; infinite for none
        outage_every: float = math.inf,
        outage_seconds: float = 0.0,  # mean length of an outage
    ) -> None:
        self._seed, self._name, self._clients = seed, name, clients
        points = sorted(quantiles.items())
        self._shares = np.array([percent / 100.0 for percent, _ in points])
        self._rates = np.array([rate for _, rate in points])
        self.step = step
        self._correlation = correlation
        self._fail = 0.0 if outage_every == math.inf else min(step / outage_every, 1.0)
        self._recover = min(step / outage_seconds, 1.0) if outage_seconds > 0 else 1.0
        self._at = -1
        self._gauss: NDArray[np.float64] = np.zeros(clients)
        self._out: NDArray[np.bool_] = np.zeros(clients, dtype=bool)
        self._present: NDArray[np.float64] = np.zeros(clients)

    def process(self, client: int) -> SteppedProcess:
        return SteppedProcess(self.step, self.at_step, client)

    def at_step(self, number: int) -> NDArray[np.float64]:
        begin = number - number % _EPOCH
        if not begin <= self._at <= number:
            self._at = begin - 1  # a jump forward or, for a new reader, back: compute from the last start
        while self._at < number:
            self._advance()
        return self._present

    def _advance(self) -> None:
        from scipy.special import ndtr

        self._at += 1
        stream = generator(self._seed, "link-process", self._name, self._at)
        noise, draws = stream.standard_normal(self._clients), stream.random(self._clients)
        if self._at % _EPOCH == 0:
            # Both series begin in their stationary distribution.
            self._gauss = noise
            off = self._fail / (self._fail + self._recover)
            self._out = draws < off
        else:
            self._gauss = self._correlation * self._gauss + math.sqrt(1.0 - self._correlation**2) * noise
            self._out = np.where(self._out, draws >= self._recover, draws < self._fail)
        rates = np.interp(ndtr(self._gauss), self._shares, self._rates)
        self._present = np.where(self._out, 0.0, rates)
