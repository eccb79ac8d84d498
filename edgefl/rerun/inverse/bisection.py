"""Search the boundary between the factors that meet a condition and those that do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Interval(NamedTuple):
    """The two sides of the boundary.

    Attributes:
        met: the factor closest to the boundary that meets the condition; ``None`` if not even the easiest one does.
        missed: the factor closest to the boundary that does not.
    """

    met: float | None
    missed: float


def boundary(meets: Callable[[float], bool], *, easiest: float, missed: float, precision: float = 0.01) -> Interval:
    """Search by bisection of the factor's logarithm.

    Args:
        meets: whether the condition is met at a factor; expected to change once between the two ends.
        easiest: the end of the range at which it is most likely met.
        missed: the other end, at which it is not met.
        precision: the ratio of the two factors of the result is at most 1 + precision.

    >>> interval = boundary(lambda factor: factor >= 0.3, easiest=1000, missed=0.001)
    >>> 0.297 < interval.missed < 0.3 <= interval.met < 0.303
    True
    >>> boundary(lambda factor: factor >= 2000, easiest=1000, missed=0.001)
    Interval(met=None, missed=1000)
    """
    if not meets(easiest):
        return Interval(None, easiest)
    met = easiest
    while max(met, missed) > (1 + precision) * min(met, missed):
        middle = math.sqrt(met * missed)
        if meets(middle):
            met = middle
        else:
            missed = middle
    return Interval(met, missed)
