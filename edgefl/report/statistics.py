"""Means, 95 % intervals, and times to targets that some seeds do not reach.

Two rules apply to all reports; the rule for ties is in :mod:`edgefl.report.paired`:

1. A figure over seeds is their mean with Student's t interval. One seed has no interval.
2. A seed that ends without reaching a target counts as later than every seed that reached it. The mean is given only
   if all seeds reached the target; else the number that did, and the median if more than half of them did.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean over seeds and the half width of its interval (``None`` with one seed)."""

    mean: float
    half_width: float | None
    seeds: int

    @property
    def low(self) -> float:
        """The interval's lower end; the mean if there is no interval."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """The interval's upper end; the mean if there is no interval."""
        return self.mean + (self.half_width or 0.0)


NO_ESTIMATE = Estimate(None, None, 0)  # type: ignore[arg-type]
"""In place of a mean that does not exist, so that CSV has its columns."""


class TimeToTarget(NamedTuple):
    """When the seeds of one method reached a target, in seconds."""

    reached: int  # how many seeds reached it, of seeds
    seeds: int
    mean: Estimate | None  # mean and interval; only if every seed reached it
    # over all seeds; those that never reached it count as last, and the median is None if it is one of them
    median: float | None


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean of ``values``, of which there is at least one, and Student's t interval around it.

    >>> mean_interval([1.0, 2.0, 3.0])
    Estimate(mean=2.0, half_width=2.484..., seeds=3)
    >>> mean_interval([4.0])
    Estimate(mean=4.0, half_width=None, seeds=1)
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    if math.isclose(min(values), max(values), rel_tol=1e-12):  # avoid a spread from rounding errors
        return Estimate(values[0], 0.0, count)
    deviation = float(np.std(np.asarray(values), ddof=1))
    return Estimate(mean, t_factor(count, confidence) * deviation / math.sqrt(count), count)


def t_factor(count: int, confidence: float = CONFIDENCE) -> float:
    """The factor between the standard error of a mean of ``count`` values and the half width of its interval.

    >>> round(t_factor(3), 3), round(t_factor(3, confidence=0.9875), 3)
    (4.303, 8.86)
    """
    from scipy.special import stdtrit  # the t quantile, without the slow import of scipy.stats

    return float(stdtrit(count - 1, 0.5 + confidence / 2))


def mean_or_none(values: Sequence[float | None]) -> Estimate | None:
    """The same, or ``None`` if any value is missing, because a mean of the other values would mislead."""
    present = [value for value in values if value is not None]
    return mean_interval(present) if present and len(present) == len(values) else None


def time_to_target(seconds: Sequence[float | None]) -> TimeToTarget:
    """Summarise each seed's time to a target (``None``: never reached).

    >>> time_to_target([3.0, None, 1.0])
    TimeToTarget(reached=2, seeds=3, mean=None, median=3.0)
    >>> time_to_target([3.0, None]).median is None
    True
    """
    reached = sum(value is not None for value in seconds)
    middle = median(math.inf if value is None else value for value in seconds) if seconds else math.inf
    return TimeToTarget(reached, len(seconds), mean_or_none(seconds), middle if math.isfinite(middle) else None)


POWER = 0.8
"""The probability to decide a true difference, if nothing else is asked for."""
MOST_SEEDS = 1000
"""Larger numbers of seeds are not given."""


def power_of_comparison(difference: float, deviation: float, seeds: int, confidence: float = CONFIDENCE) -> float:
    """The probability that the interval of the mean difference excludes zero, by its true mean and deviation.

    >>> round(power_of_comparison(1.0, 2.0, 34), 3)
    0.808
    """
    from scipy.special import nctdtr

    if deviation == 0.0:
        return float(difference != 0.0)
    limit, shift = t_factor(seeds, confidence), abs(difference) * math.sqrt(seeds) / deviation
    if not math.isfinite(shift):
        return 1.0
    below, above = (float(nctdtr(seeds - 1, shift, end)) for end in (-limit, limit))
    # SciPy returns NaN in tails that are far out, beyond 30 standard deviations of a normal approximation.
    return 1.0 - (0.0 if math.isnan(above) else above) + (0.0 if math.isnan(below) else below)


def seeds_needed(
    difference: float, deviation: float, *, confidence: float = CONFIDENCE, power: float = POWER
) -> int | None:
    """The least number of seeds, at least two, with which a true difference is decided with at least this ``power``.

    ``None`` if it is larger than :data:`MOST_SEEDS`.

    >>> seeds_needed(1.0, 2.0), seeds_needed(1.0, 0.5), seeds_needed(1.0, 100.0)
    (34, 5, None)
    """
    counts = range(2, MOST_SEEDS + 1)
    place = bisect_left(counts, power, key=lambda seeds: power_of_comparison(difference, deviation, seeds, confidence))
    return counts[place] if place < len(counts) else None


def upper_deviation(deviation: float, seeds: int) -> float:
    """The upper 80 % confidence bound of the standard deviation of normal values, from that of a sample.

    >>> round(upper_deviation(1.0, 3), 2), round(upper_deviation(1.0, 20), 2)
    (2.12, 1.18)
    """
    from scipy.special import chdtri

    return deviation * math.sqrt((seeds - 1) / float(chdtri(seeds - 1, 0.8)))
