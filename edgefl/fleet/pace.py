"""The progress of a computation on a device that is slowed down by other work and by heat, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of one computation.

    It advances at 1 / ``cool`` per second for the first ``after`` seconds, and at 1 / ``hot`` afterwards.

    Attributes:
        cool: seconds that the whole computation takes at the full rate.
        hot: seconds that the whole computation takes at the throttled rate.
        after: seconds at the full rate; infinite for devices that do not throttle.

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
        """The duration of the computation."""
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
