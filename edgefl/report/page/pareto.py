"""The Pareto front: the models for which no other model is as accurate at a lower cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgefl.report.curves import Curve


class Point(NamedTuple):
    """A model: its cost, its accuracy, and the index of its series."""

    cost: float
    accuracy: float
    series: int


def models_of(curves: Sequence[Curve], kind: str, series: int) -> list[Point]:
    """A method's models, the mean over seeds for each evaluation that every seed has."""
    if not curves:
        return []
    count = min(len(curve.accuracy) for curve in curves)
    return [
        Point(
            sum(float(curve.spent[kind][number]) for curve in curves) / len(curves),
            sum(float(curve.accuracy[number]) for curve in curves) / len(curves),
            series,
        )
        for number in range(count)
    ]


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other point dominates (at least as accurate for less, or more accurate for the same cost).

    They ascend by cost, and therefore by accuracy.

    >>> [point.cost for point in front([Point(1, 0.5, 0), Point(2, 0.4, 0), Point(2, 0.7, 1), Point(3, 0.7, 0)])]
    [1, 2]
    """
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy, point.series)):
        if not found or point.accuracy > found[-1].accuracy:
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
