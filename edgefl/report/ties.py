"""The rule for ties in all reports: two methods are *tied* if their intervals overlap (equal ends count).

This is stricter than a test of the difference: methods that are not tied differ at the 5 % level, and tied methods may
differ, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgefl.report.statistics import Estimate


def overlap(one: Estimate, other: Estimate) -> bool:
    """Whether two intervals share a point; without intervals, whether the figures are equal.

    >>> overlap(Estimate(1.0, 0.5, 3), Estimate(2.0, 0.5, 3)), overlap(Estimate(1.0, None, 1), Estimate(1.1, None, 1))
    (True, False)
    """
    return one.low <= other.high and other.low <= one.high


def leaders(estimates: Mapping[str, Estimate], *, highest: bool) -> list[str]:
    """The name with the best mean and those tied with it, from best to worst mean.

    >>> leaders({"a": Estimate(1.0, 0.1, 3), "b": Estimate(3.0, 0.2, 3), "c": Estimate(2.9, 0.2, 3)}, highest=True)
    ['b', 'c']
    """
    ranked = sorted(estimates, key=lambda name: estimates[name].mean, reverse=highest)
    return [name for name in ranked if overlap(estimates[name], estimates[ranked[0]])]
