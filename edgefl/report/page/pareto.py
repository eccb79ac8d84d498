"""The Pareto front: the models for which no other model is as good at a lower cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgefl.record.metric import ACCURACY, Metric
from edgefl.report.curves import Curve


class Point(NamedTuple):
    """A model: its cost, its metric, and the index of its series."""

    cost: float
    value: float
    series: int


def models_of(curves: Sequence[Curve], kind: str, series: int) -> list[Point]:
    """A method's models, the mean over seeds for each evaluation that every seed has."""
    if not curves:
        return []
    count = min(len(curve.values) for curve in curves)
    return [
        Point(
            sum(float(curve.spent[kind][number]) for curve in curves) / len(curves),
            sum(float(curve.values[number]) for curve in curves) / len(curves),
            series,
        )
        for number in range(count)
    ]


def front(points: Sequence[Point], metric: Metric = ACCURACY) -> list[Point]:
    """The points that no other point dominates (as good or better for less, or better for the same cost).

    They ascend by cost, and therefore become better.

    >>> [point.cost for point in front([Point(1, 0.5, 0), Point(2, 0.4, 0), Point(2, 0.7, 1), Point(3, 0.7, 0)])]
    [1, 2]
    """
    found: list[Point] = []
    sign = 1 if metric.better == "higher" else -1
    for point in sorted(points, key=lambda point: (point.cost, -sign * point.value, point.series)):
        if not found or sign * point.value > sign * found[-1].value:
            found.append(point)
    return found


def stretches(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """The first and last point of each run of successive front points that belong to the same series."""
    found: list[tuple[Point, Point]] = []
    for point in points:
        if found and found[-1][1].series == point.series:
            found[-1] = (found[-1][0], point)
        else:
            found.append((point, point))
    return found
