"""The metric over time, bytes, FLOPs, joules or rounds: each seed's points, and the mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.record.figures import Floats, Totals, spent_by_round
from edgefl.record.metric import Metric

if TYPE_CHECKING:
    import pyarrow as pa

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
        reached = np.flatnonzero(as_good(self.values, goal, metric))
        return float(self.spent[kind][reached[0]]) if len(reached) else None


class MeanCurve(NamedTuple):
    """The mean over seeds, and the lowest and highest seed, over the part of the axis that every seed covers."""

    axis: Floats
    mean: Floats
    low: Floats
    high: Floats


def metric_of(run: RunResult) -> str:
    """The column to which the scenario's targets refer: ``metric`` or ``metric_ema``."""
    return "metric_ema" if run.smoothed else "metric"


def as_good(values: Floats, goal: float, metric: Metric) -> NDArray[np.bool_]:
    """Where values of a metric are as good as a goal; NaN never is."""
    return values >= goal if metric.better == "higher" else values <= goal


def column(table: pa.Table, name: str) -> Floats:
    """A column of ``rounds.parquet``; NaN where it has no value."""
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)


def columns(table: pa.Table) -> dict[str, Floats]:
    """All columns of ``rounds.parquet``."""
    return {name: column(table, name) for name in table.column_names}


def curve_of(run: RunResult, label: str, seed: int, metric: str) -> Curve:
    """The evaluations of one method and seed, by this column of ``rounds.parquet``."""
    table = run.rounds_of(label, seed)
    values = column(table, metric)
    evaluated = np.isfinite(values)
    spent = spent_by_round(columns(table))
    return Curve(Totals({kind: amounts[evaluated] for kind, amounts in spent.items()}), values[evaluated])


def curves_of(run: RunResult, label: str, factor: float = 1.0) -> list[Curve]:
    """The evaluations of a method's seeds, times a factor; seeds without any are omitted."""
    found = [curve_of(run, label, each.seed, metric_of(run)) for each in run.results[label]]
    return [curve._replace(values=factor * curve.values) for curve in found if len(curve.values)]


def mean_curve(found: Sequence[Curve], kind: str, points: int = 200) -> MeanCurve:
    """The mean over seeds of these curves, on a common axis; between two evaluations the metric is interpolated."""
    start = max(float(curve.spent[kind][0]) for curve in found)
    end = max(start, min(float(curve.spent[kind][-1]) for curve in found))
    axis = np.linspace(start, end, points)
    values = np.stack([np.interp(axis, curve.spent[kind], curve.values) for curve in found])
    return MeanCurve(axis, values.mean(axis=0), values.min(axis=0), values.max(axis=0))
