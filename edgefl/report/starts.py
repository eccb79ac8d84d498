"""When to start: what a run emits and costs by the hour at which it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edgefl.errors import UserError
from edgefl.record.figures import PRICED, at
from edgefl.record.summary import SeedResult
from edgefl.report.figure_file import new_figure, plain
from edgefl.report.quantities import limit, quantity, unit_for
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, mean_or_none
from edgefl.report.table import Table, figures, words
from edgefl.units import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def starts_between(start: str | None, hours: str) -> list[str]:
    """The full hours after a scenario's ``start``, without the last one.

    >>> starts_between("2026-03-28T18:00+01:00", "23h..25h")
    ['2026-03-29T17:00:00+01:00', '2026-03-29T18:00:00+01:00']
    """
    first, dots, last = hours.partition("..")
    if start is None:
        raise UserError(
            "expected a scenario that says when it begins: --set start=2026-03-28T18:00+01:00", file="--start"
        )
    begin, end = (parse(each, "seconds") / 3600 for each in (first, last)) if dots else (0.0, 0.0)
    if not (0 <= begin < end and begin.is_integer() and end.is_integer()):
        raise UserError(f"expected hours after the start, such as 0h..24h, found {hours}", file="--start")
    begun = datetime.fromisoformat(str(start))
    return [(begun + timedelta(hours=each)).isoformat() for each in range(int(begin), int(end))]


class _Measure(NamedTuple):
    """A figure by the hour: its heading, its dimension, its name in CSV, and its value of a seed."""

    head: str
    dimension: str
    key: str
    value: Callable[[SeedResult], float | None]
    cost: bool = True  # the least one is the best

    def of(self, run: RunResult, label: str) -> Estimate | None:
        """The mean over seeds; ``None`` if one has no value."""
        return mean_or_none([self.value(seed) for seed in run.moments[label]])


def _measures(run: RunResult) -> list[_Measure]:
    seed, metric = next(iter(run.moments.values()))[0], run.metric
    priced = [each for each in PRICED.values() if at(seed, each.name) is not None]
    if not priced:
        raise UserError("expected a scenario with prices", file="--start")
    found = [_Measure("time", "seconds", "seconds", lambda seed: seed.seconds, cost=False)]
    found += [_Measure(q.head, q.unit, q.name, partial(at, place=q.name)) for q in priced]
    if run.trained:
        found.append(_Measure(metric.word, metric.dimension, "metric", lambda seed: seed.metric.final, cost=False))
        for n, target in enumerate(seed.targets):
            to, key = limit(target.value, metric.dimension), f"to_{target.value:g}"
            for q in [each for each in priced if each.limit]:
                cost = partial(lambda n, name, seed: at(seed.targets[n], name), n, q.name)
                found.append(_Measure(f"{q.head} to {to}", q.unit, f"{q.name}_{key}", cost))
        for n, budget in enumerate(seed.budgets):
            head, key = f"{metric.word} within {limit(budget.limit, budget.kind)}", f"metric_within_{budget.kind}"
            within = partial(lambda n, seed: seed.budgets[n].metric, n)
            found.append(_Measure(head, metric.dimension, key, within, cost=False))
    return found


def _start(run: RunResult) -> datetime:
    return datetime.fromisoformat(run.option("start"))


def starts_table(runs: Sequence[RunResult]) -> Table:
    """A row for each method and start, and for each cost the best start and what the worst one costs.

    A start whose training the finished run does not have to the end is in the table, and not compared.
    """
    rows = [(label, run, _start(run)) for label in runs[0].labels for run in runs]
    columns = [words("method", [label for label, *_ in rows], "method"),
               words("start", [f"{start:%Y-%m-%d %H:%M}" for *_, start in rows], "start")]  # fmt: skip
    short = [
        (label, start) for label, run, start in rows if any(e.stop.reason == "trained" for e in run.moments[label])
    ]
    notes = []
    for measure in _measures(runs[0]):
        means = {(label, start): measure.of(run, label) for label, run, start in rows}
        columns.append(figures(measure.head, list(means.values()), measure.dimension, measure.key, spread=True))
        for label in runs[0].labels if measure.cost else ():
            known = {key[1]: e.mean for key, e in means.items() if key[0] == label and e and key not in short}
            if len(known) > 1:
                notes.append(_best(label, measure, known))
    if short:
        names = ", ".join(f"{label} at {start:%H:%M}" for label, start in short)
        notes.append(f"Not compared, because other clients would have trained: {names}.")
    zone = f"{_start(runs[0]):%z}"
    return Table(columns, [*notes, f"Starts at {zone[:3]}:{zone[3:]}; nothing was trained again."])


def _best(label: str, measure: _Measure, known: Mapping[datetime, float]) -> str:
    least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    times = f", {known[most] / known[least]:.3g} times as much" if known[least] > 0 else ""
    return (
        f"{label}, {measure.head}: best at {least:%Y-%m-%d %H:%M}, {quantity(known[least], measure.dimension)}; "
        f"at {most:%H:%M}, the worst, {quantity(known[most], measure.dimension)}{times}."
    )


def starts_figure(runs: Sequence[RunResult]) -> Figure:
    """A panel for each of grams and euros, with a line for each method."""
    measures, first = [each for each in _measures(runs[0]) if each.key in PRICED], _start(runs[0])
    figure = new_figure(figsize=(4.5 * len(measures), 3.6), layout="constrained")
    hours = [(_start(run) - first).total_seconds() / 3600 for run in runs]
    for ax, measure in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures, strict=True):
        lines = {label: [measure.of(run, label) for run in runs] for label in runs[0].labels}
        unit = unit_for([each.mean for line in lines.values() for each in line if each], measure.dimension)
        for label, line in lines.items():
            means = [each.mean / unit.scale if each else float("nan") for each in line]
            ax.step(hours, means, where="mid", label=label)
        ax.set_xlabel(f"start, hours after {first:%Y-%m-%d %H:%M%z}")
        ax.set_ylabel(f"{measure.head}, {unit.symbol}")
        plain(ax)
    figure.axes[0].legend(frameon=False)
    return figure
