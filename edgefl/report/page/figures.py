"""The data of each drawing, which the page's script draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from edgefl.record.metric import ACCURACY, Metric
from edgefl.report.curves import AXES, Curve
from edgefl.report.page.series import COSTS, Series, budget_data, curve_data, plain
from edgefl.report.paired import confidence_among
from edgefl.report.quantities import FROM, LADDERS, unit_for
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import t_factor
from edgefl.report.timeline.usage import breakdown_of, traffic_of, use_of_clients

PHASES = ("download", "compute", "upload", "waiting", "hidden")


def page_data(runs: Sequence[RunResult], series: Sequence[Series]) -> dict[str, Any]:
    """All data that the page's script needs."""
    trained = any(run.trained for run in runs)
    curves = [curve_data(one) for one in series]
    return {
        "trained": trained,
        "metric": _metric(runs),
        "names": [one.name for one in series],
        "ladders": LADDERS,
        "from": FROM,
        "t": _t_factors(max(len(one.results) for one in series), len(series)),
        "curves": curves,
        "units": {kind: _unit([c[kind]["x"][-1] for c in curves if c], kind) for kind in AXES},
        "targets": sorted({target.value for one in series for result in one.results for target in result.targets}),
        "budgets": {
            kind: sorted(
                {b.limit for one in series for result in one.results for b in result.budgets if b.kind == kind}
            )
            for kind in AXES
        },
        "held": [budget_data(one, trained=trained) for one in series],
        "unseen": [one.run.scatter[one.label] if trained else 0.0 for one in series],
        "pareto": {kind: pareto_data(series, kind) for kind in COSTS},
        "traffic": [traffic_data(one) for one in series],
        "phases": [phase_data(one) for one in series],
        "clients": [client_data(one) for one in series],
        "alphas": [alpha_data(one) for one in series],
    }


def _metric(runs: Sequence[RunResult]) -> dict[str, Any]:
    """The metric of all runs: its name, whether it is shown in percent, and whether higher values are better."""
    metric = runs[0].metric
    word = f"smoothed {metric.word}" if any(run.smoothed for run in runs) else metric.word
    return {"word": word, "share": metric.share, "higher": metric.better == "higher"}


def _unit(largest: Sequence[float], kind: str) -> dict[str, Any]:
    if kind == "rounds":
        return {"symbol": "", "scale": 1}
    unit = unit_for(largest, kind)
    return {"symbol": unit.symbol, "scale": unit.scale}


def _t_factors(seeds: int, methods: int) -> list[list[float]]:
    """The factor between standard error and half width, by the number of seeds and of comparisons, from 0 on."""
    among = [confidence_among(max(1, count)) for count in range(max(2, methods))]
    return [[t_factor(count, each) if count > 1 else 0.0 for each in among] for count in range(seeds + 1)]


def front_over(series: Sequence[Series], kind: str) -> list[Point]:
    """The Pareto front of all methods' models over one cost."""
    points = [point for number, one in enumerate(series) for point in models_of(one.curves, kind, number)]
    return front(points, series[0].run.metric)


def pareto_data(series: Sequence[Series], kind: str) -> dict[str, Any]:
    """Each method's models, and the Pareto front."""
    models = [models_of(one.curves, kind, number) for number, one in enumerate(series)]
    best = front_over(series, kind)
    return {
        "models": [{"x": plain([p.cost for p in each]), "y": plain([p.value for p in each])} for each in models],
        "front": {"x": plain([p.cost for p in best]), "y": plain([p.value for p in best])},
        "owner": [point.series for point in best],
    }


def traffic_data(one: Series) -> dict[str, Any] | None:
    """Bytes by direction and fate, the mean over seeds; ``None`` without event logs."""
    found = [traffic_of(timeline) for timeline in one.timelines]
    if not found:
        return None
    fates = list(dict.fromkeys(fate for each in found for fate in (*each.down, *each.up)))
    return {
        "down": {fate: sum(each.down.get(fate, 0) for each in found) / len(found) for fate in fates},
        "up": {fate: sum(each.up.get(fate, 0) for each in found) / len(found) for fate in fates},
    }


def phase_data(one: Series) -> dict[str, float] | None:
    """Seconds of a round's critical path, the mean over rounds and seeds; ``None`` without event logs or rounds."""
    rounds = [each for timeline in one.timelines for each in breakdown_of(timeline)]
    if not rounds:
        return None
    return {phase: sum(getattr(each, phase) for each in rounds) / len(rounds) for phase in PHASES}


def client_data(one: Series) -> dict[str, Any] | None:
    """One row for each client of each seed, with four significant digits; ``None`` without event logs."""
    if not one.timelines:
        return None
    kinds: list[str] = []
    rows = []
    for result, timeline in zip(one.results, one.timelines, strict=True):
        for use in use_of_clients(timeline):
            if use.device not in kinds:
                kinds.append(use.device)
            seconds = [use.seconds.get(phase, 0.0) for phase in ("download", "compute", "upload", "waiting")]
            figures = [float(f"{figure:.4g}") for figure in (*seconds, sum(use.joules.values()))]
            rows.append(
                [result.seed, use.client, kinds.index(use.device), use.jobs, use.bytes_down, use.bytes_up, *figures]
            )
    return {"kinds": kinds, "rows": rows}


def alpha_data(one: Series) -> dict[str, Any] | None:
    """The number of clients by blocks sent in each round, mean over seeds; ``None`` without a choice of blocks."""
    chosen = [timeline.alphas for timeline in one.timelines if timeline.alphas]
    if not chosen:
        return None
    rounds = sorted({round for alphas in chosen for round in alphas})
    blocks = sorted({alpha for alphas in chosen for given in alphas.values() for alpha in given.values()})
    return {
        "rounds": rounds,
        "blocks": {
            str(alpha): [
                sum(list(alphas.get(round, {}).values()).count(alpha) for alphas in chosen) / len(chosen)
                for round in rounds
            ]
            for alpha in blocks
        },
    }


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
