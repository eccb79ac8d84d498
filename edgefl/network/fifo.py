"""A first-in, first-out queue in front of a shared link: TCP flows get unequal shares."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgefl.network.flow import Node
from edgefl.randomness import integer_seed

SPREAD = 0.4
"""Standard deviation of the logarithm of a flow's weight."""

PERIOD = 0.5
"""Seconds; flows between the same nodes that begin within one period have the same weight."""


@dataclass(frozen=True)
class FifoQueue:
    """Draws the weights of flows that share links with one queue for all of them.

    A flow keeps its weight. Its logarithm is drawn from a Laplace distribution: most flows get nearly equal shares, and
    a few get much less or more. It depends on the seed, the two nodes and the period in which the flow begins, so all
    methods have the same draws, whatever they send.

    Attributes:
        seed: the run's seed.
        spread: standard deviation of the logarithm of a weight.
        draw: which of the queue's independent draws; 0 is that of the run itself.
    """

    seed: int
    spread: float = SPREAD
    draw: int = 0

    def weight(self, source: Node, target: Node, began: float) -> float:
        """The weight of a flow from ``source`` to ``target`` that began at this time (seconds).

        >>> queue = FifoQueue(seed=0, spread=0.5)
        >>> weights = [queue.weight("server", f"client/{client}", 1.7) for client in range(1000)]
        >>> sum(weight < 1 for weight in weights), sum(weight < math.exp(-0.5) for weight in weights)
        (497, 140)
        """
        name = "fifo queue" if not self.draw else f"fifo queue, draw {self.draw}"
        drawn = integer_seed(self.seed, name, math.floor(began / PERIOD), str(source), str(target))
        uniform = (drawn + 0.5) / 2.0**63
        power = self.spread / math.sqrt(2.0)
        return math.pow(2.0 * uniform, power) if uniform < 0.5 else math.pow(2.0 - 2.0 * uniform, -power)
