"""How many seeds a comparison of two methods needs.

The comparison is Student's t test of the differences by seed (:mod:`edgefl.report.paired`). If the differences have the
mean d and the standard deviation s, and a normal distribution, the test's statistic with n seeds has a noncentral t
distribution with n - 1 degrees of freedom and noncentrality d·√n/s. The power is the probability that it exceeds the
test's limit (J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 2nd edition, 1988, chapter 2).

The standard deviation of a few seeds is uncertain. With its upper confidence bound in place of the estimate, the
number of seeds is enough with that confidence (R. H. Browne, "On the use of a pilot sample for sample size
determination", Statistics in Medicine 14, 1995).
"""

from __future__ import annotations

import math

from edgefl.report.statistics import CONFIDENCE, t_factor

POWER = 0.8
"""The probability to decide a true difference, if nothing else is asked for."""
MOST_SEEDS = 1000
"""Larger numbers of seeds are not given."""


def power_of_comparison(difference: float, deviation: float, seeds: int, confidence: float = CONFIDENCE) -> float:
    """The probability that the interval of the mean difference excludes zero.

    Args:
        difference: the true mean of the differences.
        deviation: their true standard deviation, in the same unit.
        seeds: the number of seeds, at least two.
        confidence: that of the interval.

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
    """The least number of seeds with which a true difference is decided with a probability of at least ``power``.

    Returns:
        The number, at least two; ``None`` if it is larger than :data:`MOST_SEEDS`.

    >>> seeds_needed(1.0, 2.0), seeds_needed(1.0, 0.5), seeds_needed(1.0, 100.0)
    (34, 5, None)
    """
    low, high = 1, MOST_SEEDS  # too few, and enough if any number is
    if power_of_comparison(difference, deviation, high, confidence) < power:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if power_of_comparison(difference, deviation, middle, confidence) < power:
            low = middle
        else:
            high = middle
    return high


def upper_deviation(deviation: float, seeds: int, confidence: float = 0.8) -> float:
    """The upper confidence bound of the standard deviation of normal values.

    Args:
        deviation: the standard deviation of a sample.
        seeds: the size of the sample, at least two.
        confidence: the probability that the bound is above the true standard deviation.

    >>> round(upper_deviation(1.0, 3), 2), round(upper_deviation(1.0, 20), 2)
    (2.12, 1.18)
    """
    from scipy.special import chdtri

    return deviation * math.sqrt((seeds - 1) / float(chdtri(seeds - 1, confidence)))
