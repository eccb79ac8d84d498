"""Random slowdowns: how much slower than its profile each device is in a round, by chance and through other programs.

One vector over the fleet is drawn for each round from a generator that is keyed by seed, purpose and round. The method
is not part of the key, so the slowdowns of every device are the same for all methods, whichever clients they select.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet.assignment import FleetAssignment
from edgefl.randomness import generator


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of one computation.

    ``cool`` are the seconds of the whole computation at the full rate, which lasts for ``after`` seconds; ``hot`` those
    at the throttled rate.

    A computation of one minute on a device that halves its rate after 20 s:

    >>> pace = Pace(cool=60.0, hot=120.0, after=20.0)
    >>> round(pace.seconds, 9), round(pace.done(60.0), 9)
    (100.0, 0.666666667)
    """

    cool: float
    hot: float
    after: float = math.inf

    @property
    def seconds(self) -> float:
        if self.cool <= self.after:
            return self.cool
        return self.after + (1 - self.after / self.cool) * self.hot

    def until(self, part: float) -> float:
        """The seconds after which ``part`` of it is done; the inverse of :meth:`done`.

        >>> Pace(cool=60.0, hot=120.0, after=20.0).until(0.5)
        40.0
        """
        if part * self.cool <= self.after:
            return part * self.cool
        return self.after + (part - self.after / self.cool) * self.hot

    def done(self, elapsed: float) -> float:
        """The part that is done after ``elapsed`` seconds, in [0, 1]."""
        if elapsed >= self.seconds:
            return 1.0
        if elapsed <= self.after:
            return elapsed / self.cool
        return self.after / self.cool + (elapsed - self.after) / self.hot


Factors = NDArray[np.float64]


class Slowdown:
    """The factors by which computing takes longer than the profile predicts.

    A factor is exp(σz - σ²/2) / (1 - b). The first part is lognormal with mean 1; z is a standard normal number and σ
    the profile's ``compute.jitter``; b is ``compute.background_load``.

    >>> from edgefl.fleet import FleetGroup, assign
    >>> groups = [FleetGroup(profile="raspberry-pi-5", share=1, link="5g", overrides={"compute": {"jitter": 0.2}})]
    >>> slowdown = Slowdown(assign(groups, clients=3, seed=0), seed=0)
    >>> slowdown.of(round=4).shape, bool(slowdown.of(round=4)[1] == slowdown.of(round=5)[1])
    ((3,), False)
    """

    def __init__(self, fleet: FleetAssignment, seed: int) -> None:
        self._seed = seed
        computes = [profile.compute for profile in fleet.profiles]
        table = np.array(
            [(each.jitter, each.background_load.low, each.background_load.high) for each in computes], np.float64
        )
        # A fleet without slowdowns needs only one array of ones for all rounds.
        self._steady: Factors | None = None if table.any() else np.ones(len(fleet.group))
        self._conditions: NDArray[np.float64] = table[fleet.group].T
        self._known: dict[tuple[int, ...], Factors] = {}

    def of(self, round: int, again: int = 0) -> Factors:
        """Every client's factor in a round (from 0) or, without common rounds, model version; shape ``[clients]``.

        ``again`` is how many times a client began to compute in this round before.
        """
        if self._steady is not None:
            return self._steady
        place = (round, again) if again else (round,)
        if place not in self._known:
            if len(self._known) > 7:  # a run uses few rounds at a time; older ones are drawn again if needed
                self._known.clear()
            self._known[place] = self._draw(place)
        return self._known[place]

    def _draw(self, place: tuple[int, ...]) -> Factors:
        jitter, low, high = self._conditions
        normal = generator(self._seed, "jitter", *place).standard_normal(len(jitter))
        even = generator(self._seed, "background load", *place).random(len(jitter))
        load = low + (high - low) * even
        return np.asarray(np.exp(jitter * normal - jitter**2 / 2) / (1 - load), np.float64)
