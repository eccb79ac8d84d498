"""How a computation advances on a device that is slowed down by other work and by its own heat, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The course of one computation.

    It advances at 1 / ``cool`` per second for the first ``after`` seconds, and at 1 / ``hot`` from then on.

    Attributes:
        cool: seconds that all of it takes at the full rate.
        hot: seconds that all of it takes at the rate that heat leaves.
        after: seconds that the full rate lasts; infinite for devices that don't throttle.

    A minute's work whose device halves its rate after 20 s:

    >>> pace = Pace(cool=60.0, hot=120.0, after=20.0)
    >>> round(pace.seconds, 9), round(pace.done(60.0), 9)
    (100.0, 0.666666667)
    """

    cool: float
    hot: float
    after: float = math.inf

    @property
    def seconds(self) -> float:
        """How long it takes."""
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
