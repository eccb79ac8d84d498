"""A capacity from a generated random series: measured quantiles, correlated in time, with outages."""

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from edgefl.network.capacities.base import CAPACITIES, Capacities, CapacitySpec, LinkDirection, SteppedProcess
from edgefl.network.trace_times import LEAST_CHANGE_SECONDS
from edgefl.randomness import generator
from edgefl.units import BitsPerSecond, Seconds

MEASURED_DOWNLINKS: dict[str, dict[float, float]] = {
    "4g_driving": {5: 3, 25: 15, 50: 32, 75: 55, 95: 112},
    "4g_walking": {5: 3, 25: 12, 50: 29, 75: 58, 95: 110},
    "5g_driving": {5: 12, 25: 98, 50: 124, 75: 550, 95: 1170},
    "5g_walking": {5: 8, 25: 112, 50: 503, 75: 904, 95: 1420},
}
"""Percentiles in Mbit/s of the Lumos5G replay traces (Minneapolis; Narayanan et al., IMC 2020), as published in the
artifact of "A Variegated Look at 5G in the Wild" (SIGCOMM 2021)."""


@CAPACITIES.register("process")
class GeneratedCapacity(CapacitySpec):
    """A seeded random series per client: quantiles of the rate, correlation in time, outages."""

    kind: Literal["process"] = Field("process", description="A capacity from a generated random series.")
    like: Literal["4g_driving", "4g_walking", "5g_driving", "5g_walking"] | None = Field(
        None, description="Quantiles of measured downlinks, instead of `quantiles`."
    )
    quantiles: dict[Annotated[float, Field(ge=0, le=100)], BitsPerSecond] | None = Field(
        None, min_length=2, description="Percent to rate, {10: 12 Mbit/s, …}; linear between, flat outside."
    )
    step: Seconds = Field(1.0, ge=LEAST_CHANGE_SECONDS, description="How long a value is valid.")
    correlation: float = Field(0.7, ge=0, lt=1, description="Lag-1 autocorrelation of the underlying Gaussian series.")
    outage_every: Seconds | None = Field(None, gt=0, description="Mean time between outages; null for none.")
    outage_length: Seconds = Field(2.0, gt=0, description="Mean length of an outage.")

    @model_validator(mode="after")
    def _quantiles_rise(self) -> Self:
        if (self.quantiles is None) == (self.like is None):
            raise ValueError(f"expected either quantiles or like, found {'neither' if self.like is None else 'both'}")
        rates = [rate for _, rate in sorted(self.rates.items())]
        if rates != sorted(rates):
            raise ValueError("expected rates that rise with the percent")
        if self.outage_length < self.step or (self.outage_every is not None and self.outage_every < self.step):
            raise ValueError("expected outage_every and outage_length of at least one step")
        return self

    @property
    def rates(self) -> dict[float, float]:
        """Percent to bit/s, from ``quantiles`` or ``like``."""
        if self.quantiles is not None:
            return self.quantiles
        return {percent: rate * 1e6 for percent, rate in MEASURED_DOWNLINKS[self.like or "5g_driving"].items()}

    def start(self, direction: LinkDirection) -> Capacities:
        return GeneratedRates(self, direction)

    def scaled(self, factor: float) -> Self:
        quantiles = {percent: rate * factor for percent, rate in self.rates.items()}
        return self.model_copy(update={"like": None, "quantiles": quantiles})


_EPOCH = 2**14
"""Steps after which a series restarts in its stationary distribution; 4.5 hours with steps of one second."""


class GeneratedRates(Capacities):
    """The capacities of all clients on one link in one direction: measured quantiles, correlated in time, with outages.

    Each capacity steps at fixed intervals. A Gaussian AR(1) series gives the correlation, the quantile function turns
    its ranks into rates, and a two-state Markov chain switches the link off and on. All clients of a link advance
    together, with one keyed stream for each step, so no client's series depends on the order of calls. At fixed
    intervals the series restarts independently of its past, so that idle years cost nothing.

    >>> direction = LinkDirection("5g", "down", 3, 0, None, False, GeneratedCapacity(like="5g_walking"))
    >>> client = GeneratedRates(GeneratedCapacity(quantiles={0: 1e6, 100: 9e6}), direction).process(2)
    >>> client.next_change(0.25), 1e6 <= client.value(0.25) <= 9e6
    (1.0, True)
    """

    def __init__(self, spec: GeneratedCapacity, direction: LinkDirection) -> None:
        self._spec, self._link = spec, direction
        self._percents, self._rates = np.array(sorted(spec.rates.items())).T
        self._fail = 0.0 if spec.outage_every is None else min(spec.step / spec.outage_every, 1.0)
        self._recover = min(spec.step / spec.outage_length, 1.0)
        self._at = -1
        self._gauss: NDArray[np.float64] = np.zeros(direction.clients)
        self._out: NDArray[np.bool_] = np.zeros(direction.clients, dtype=bool)
        self._present: NDArray[np.float64] = np.zeros(direction.clients)

    def usual(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """The medians."""
        return np.full(len(clients), np.interp(50.0, self._percents, self._rates))

    def highest(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.full(len(clients), self._rates[-1])

    def process(self, client: int) -> SteppedProcess:
        return SteppedProcess(self._spec.step, self.at_step, client)

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
        link, correlation = self._link, self._spec.correlation
        stream = generator(link.seed, "link-process", f"{link.name} {link.direction}", self._at)
        noise, draws = stream.standard_normal(link.clients), stream.random(link.clients)
        if self._at % _EPOCH == 0:
            # Both series begin in their stationary distribution.
            self._gauss = noise
            off = self._fail / (self._fail + self._recover)
            self._out = draws < off
        else:
            self._gauss = correlation * self._gauss + math.sqrt(1.0 - correlation**2) * noise
            self._out = np.where(self._out, draws >= self._recover, draws < self._fail)
        rates = np.interp(ndtr(self._gauss), self._percents / 100.0, self._rates)
        self._present = np.where(self._out, 0.0, rates)
