"""The data of the page's drawings and sliders: one *series* for each method of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from edgefl.record.summary import SeedResult
from edgefl.report.curves import AXES, Curve, column, curve_of, mean_curve, metric_of, spent_by_round
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult
from edgefl.report.timeline.data import Timeline, read_timeline

COSTS: tuple[Literal["seconds", "bytes", "joules"], ...] = ("seconds", "bytes", "joules")
"""The kinds of cost of the budget sliders and the Pareto front."""


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
        metric = metric_of(self.run)
        found = [curve_of(self.run, self.label, result.seed, metric) for result in self.results]
        return [curve for curve in found if len(curve.values)]


def series_of(runs: Sequence[RunResult]) -> list[Series]:
    """One series for each method, runs in the order given and methods in their scenario's order."""
    names = run_names(runs)
    return [
        Series(run, label, f"{name}: {label}" if len(runs) > 1 else label)
        for name, run in zip(names, runs, strict=True)
        for label in run.labels
    ]


def budget_data(series: Series, *, trained: bool) -> list[dict[str, Any]]:
    """For each seed the amounts spent by the end of each round, and the last metric by then; else the round."""
    found = []
    for result in series.results:
        table = series.run.rounds_of(series.label, result.seed)
        spent = spent_by_round(table)
        values = column(table, metric_of(series.run)) if trained else spent["rounds"]
        last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
        known = last >= 0
        amounts: dict[str, Any] = {kind: plain(spent[kind][known]) for kind in COSTS}
        total = {kind: result.spent(kind) for kind in COSTS}
        found.append({"seed": result.seed, **amounts, "value": plain(values[last[known]]), "total": total})
    return found


def curve_data(series: Series) -> dict[str, dict[str, list[float]]]:
    """The mean curve with its band over each axis; empty if nothing was evaluated."""
    if not series.curves:
        return {}
    drawn = {kind: mean_curve(series.curves, kind) for kind in AXES}
    return {
        kind: {"x": plain(curve.axis), "y": plain(curve.mean), "low": plain(curve.low), "high": plain(curve.high)}
        for kind, curve in drawn.items()
    }


def plain(values: Any) -> list[float]:
    """Numbers for JSON, with seven significant digits, which is finer than any screen."""
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=np.float64).tolist()]
