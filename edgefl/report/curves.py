"""The metric over time, bytes, FLOPs, joules or rounds: each seed's points, and the mean over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgefl.record.figures import Floats, Totals, spent_by_round
from edgefl.record.metric import Metric
from edgefl.report.run_result import RunResult


class Curve(NamedTuple):
    """One seed: the amounts spent up to each evaluation, and its metric."""

    spent: Totals
    values: Floats

    def at_round(self, round: int) -> float | None:
        """The value of the last evaluation up to a round."""
        count = np.searchsorted(self.spent["rounds"], round, side="right")
        return float(self.values[count - 1]) if count else None

    def spent_to(self, goal: float, kind: str, metric: Metric) -> float | None:
        """The amount spent up to the first evaluation that is as good as a goal."""
        reached = np.flatnonzero(metric.reaches(self.values, goal))
        return float(self.spent[kind][reached[0]]) if len(reached) else None


class MeanCurve(NamedTuple):
    """The mean over seeds, and the lowest and highest seed, over the part of the axis that every seed covers."""

    axis: Floats
    mean: Floats
    low: Floats
    high: Floats


def curve_of(run: RunResult, label: str, seed: int, metric: str) -> Curve:
    """The evaluations of one method and seed, by this column of ``rounds.parquet``."""
    columns = run.columns_of(label, seed)
    evaluated = np.isfinite(columns[metric])
    spent = {kind: amounts[evaluated] for kind, amounts in spent_by_round(columns).items()}
    return Curve(Totals(spent), columns[metric][evaluated])


def curves_of(run: RunResult, label: str) -> list[Curve]:
    """The evaluations of a method's seeds; seeds without any are omitted."""
    found = [curve_of(run, label, each.seed, run.aim) for each in run.results[label]]
    return [curve for curve in found if len(curve.values)]


def mean_curve(found: Sequence[Curve], kind: str, points: int = 200) -> MeanCurve:
    """The mean over seeds of these curves, on a common axis; between two evaluations the metric is interpolated."""
    start = max(float(curve.spent[kind][0]) for curve in found)
    end = max(start, min(float(curve.spent[kind][-1]) for curve in found))
    axis = np.linspace(start, end, points)
    values = np.stack([np.interp(axis, curve.spent[kind], curve.values) for curve in found])
    return MeanCurve(axis, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
