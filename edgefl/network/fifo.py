"""A first-in, first-out queue in front of a shared link: TCP flows get unequal shares that vary over time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from edgefl.network.flow import Node
from edgefl.randomness import integer_seed

SPREAD = 0.4
"""Standard deviation of the logarithm of a flow's weight."""

PERIOD = 0.5
"""Seconds for which a weight is valid."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class FifoQueue:
    """Draws the weights of flows that share links with one queue for all of them.

    In each period each pair of nodes has a weight, drawn from a log-normal distribution of median 1. It depends on the
    seed, the two nodes and the period only, so all methods have the same draws, whatever they send.

    Attributes:
        seed: the run's seed.
        spread: standard deviation of the logarithm of a weight.
        period: seconds for which a weight is valid.
    """

    seed: int
    spread: float = SPREAD
    period: float = PERIOD

    def number(self, seconds: float) -> int:
        """The number of the period, from 0, that contains this time; period n begins at ``n * period``.

        >>> FifoQueue(seed=0, period=0.1).number(91 * 0.1)  # 91 * 0.1 / 0.1 is below 91
        91
        """
        number = math.floor(seconds / self.period)
        if (number + 1) * self.period <= seconds:
            return number + 1
        return number - 1 if number * self.period > seconds else number

    def weight(self, source: Node, target: Node, number: int) -> float:
        """The weight of flows from ``source`` to ``target`` in this period.

        >>> queue = FifoQueue(seed=0, spread=0.5)
        >>> weights = [queue.weight("server", f"client/{client}", 3) for client in range(1000)]
        >>> sum(weight < 1 for weight in weights), sum(weight < math.exp(-0.5) for weight in weights)
        (497, 174)
        """
        drawn = integer_seed(self.seed, "fifo queue", number, str(source), str(target))
        return math.exp(self.spread * _NORMAL.inv_cdf((drawn + 0.5) / 2.0**63))
