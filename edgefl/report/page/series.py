"""The data of the budget sliders and of the Pareto front: one *series* for each method of each run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from edgefl.record.figures import COSTS, QUANTITIES, figure, spent_by_round
from edgefl.record.metric import ACCURACY, Metric
from edgefl.record.summary import SeedResult
from edgefl.report.curves import Curve, curves_of
from edgefl.report.paired import confidence_among
from edgefl.report.quantities import FROM, LADDERS
from edgefl.report.rows import named_methods
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import t_factor
from edgefl.report.timeline.data import Timeline, read_timeline


@dataclass(frozen=True)
class Series:
    """One method of one run."""

    run: RunResult  # the run
    label: str  # the method's label
    name: str  # its name on the page: the label, with the run's name before it if there are several runs

    @property
    def results(self) -> tuple[SeedResult, ...]:
        """The result of each seed."""
        return self.run.results[self.label]

    @cached_property
    def timelines(self) -> list[Timeline]:
        """The timeline of each seed, from its event log; empty if a log is missing, as in folders made by hand."""
        logs = [self.run.paths.of(self.label, result.seed).events for result in self.results]
        if not all(log.is_file() for log in logs):
            return []
        return [read_timeline(log.parent) for log in logs]

    @cached_property
    def curves(self) -> list[Curve]:
        """The seeds' evaluations; seeds without any are omitted."""
        return curves_of(self.run, self.label)


def series_of(runs: Sequence[RunResult]) -> list[Series]:
    """One series for each method, runs in the order given and methods in their scenario's order."""
    return [Series(*each) for each in named_methods(runs)]


def compared_series(series: Sequence[Series]) -> list[Series]:
    """Those that are no baselines; all if there are no others."""
    return [one for one in series if one.label not in one.run.baselines] or list(series)


def slider_data(runs: Sequence[RunResult], series: Sequence[Series]) -> dict[str, Any]:
    """All data that the page's script needs."""
    trained, metric = any(run.trained for run in runs), runs[0].metric
    found = [(budget.kind, budget.limit) for one in series for result in one.results for budget in result.budgets]
    return {
        "trained": trained,
        "metric": {"share": metric.share, "higher": metric.better == "higher"},
        "names": [one.name for one in series],
        "ladders": LADDERS,
        "from": FROM,
        "t": _t_factors(max(len(one.results) for one in series), len(series)),
        "budgets": {kind: sorted({amount for each, amount in found if each == kind}) for kind in COSTS},
        "held": [_held(one, trained=trained) for one in series],
        "unseen": [one.run.scatter[one.label] if trained else 0.0 for one in series],
    }


def _t_factors(seeds: int, methods: int) -> list[list[float]]:
    """The factor between standard error and half width, by the number of seeds and of comparisons, from 0 on."""
    among = [confidence_among(max(1, count)) for count in range(max(2, methods))]
    return [[t_factor(count, each) if count > 1 else 0.0 for each in among] for count in range(seeds + 1)]


def _held(series: Series, *, trained: bool) -> list[dict[str, Any]]:
    """For each seed the amounts spent by the end of each round, and the last metric by then; else the round."""
    found = []
    for result in series.results:
        columns = series.run.columns_of(series.label, result.seed)
        spent = spent_by_round(columns)
        values = columns[series.run.aim] if trained else spent["rounds"]
        last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
        known = last >= 0
        amounts: dict[str, Any] = {kind: _short(spent[kind][known]) for kind in COSTS}
        total = {kind: figure(result, QUANTITIES[kind]) for kind in COSTS}
        found.append({"seed": result.seed, **amounts, "value": _short(values[last[known]]), "total": total})
    return found


def _short(values: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64).tolist()]


class Point(NamedTuple):
    """A model: its cost, its metric, and the index of its series."""

    cost: float
    value: float
    series: int


def front_over(series: Sequence[Series], kind: str) -> list[Point]:
    """The Pareto front of all methods' models over one cost, each the mean over the seeds of one evaluation."""
    points = []
    for number, one in enumerate(series):
        for at in range(min((len(curve.values) for curve in one.curves), default=0)):
            both = zip(*((float(each.spent[kind][at]), float(each.values[at])) for each in one.curves), strict=True)
            cost, value = (sum(each) / len(each) for each in both)
            points.append(Point(cost, value, number))
    return front(points, series[0].run.metric)


def front(points: Sequence[Point], metric: Metric = ACCURACY) -> list[Point]:
    """The points that no other point dominates (as good or better for less, or better for the same cost)."""
    found: list[Point] = []
    sign = 1 if metric.better == "higher" else -1
    for point in sorted(points, key=lambda point: (point.cost, -sign * point.value, point.series)):
        if not found or sign * point.value > sign * found[-1].value:
            found.append(point)
    return found
