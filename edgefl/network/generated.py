"""A seeded generator of capacities: measured quantiles, correlation in time, and outages.

Each client's capacity steps at fixed intervals. A Gaussian AR(1) series gives the correlation, the quantile function
turns its ranks into rates, and a two-state Markov chain switches the link off and on. All clients of a link advance
together, with one keyed stream for each step, so no client's series depends on the order of calls. At fixed intervals
the series restarts independently of its past, so that a link that was idle for years does not require all steps in
between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgefl.network.processes import SteppedProcess
from edgefl.randomness import generator

_EPOCH = 2**14
"""Steps after which a series restarts in its stationary distribution; 4.5 hours with steps of one second."""


class GeneratedRates:
    """The capacities of all clients on one link in one direction, step by step.

    Args:
        seed: the run's seed.
        name: identifies the series (the link's name and direction).
        clients: the number of clients.
        quantiles: percent (0 to 100) to bit/s, at least two, rising; linear in between, flat outside.
        step: seconds for which a value is valid.
        correlation: lag-1 autocorrelation of the Gaussian series, in [0, 1).
        outage_every: mean seconds between the end of an outage and the next one; infinite for none.
        outage_seconds: mean length of an outage.

    >>> rates = GeneratedRates(0, "5g down", 3, quantiles={0: 1e6, 100: 9e6}, step=1.0, correlation=0.7)
    >>> client = rates.process(2)
    >>> client.next_change(0.25), 1e6 <= client.value(0.25) <= 9e6
    (1.0, True)
    """

    def __init__(
        self,
        seed: int,
        name: str,
        clients: int,
        *,
        quantiles: Mapping[float, float],
        step: float,
        correlation: float,
        outage_every: float = math.inf,
        outage_seconds: float = 0.0,
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
        """One client's capacity over time."""
        return SteppedProcess(self, client)

    def at_step(self, number: int) -> NDArray[np.float64]:
        """All clients' capacities during step ``number``, bit/s."""
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
