"""When to start: what a run emits and costs by the hour at which it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from edgefl.errors import UserError
from edgefl.record.figures import PRICED, at
from edgefl.record.summary import SeedResult
from edgefl.report.figure_file import new_figure, plain
from edgefl.report.quantities import limit, quantity, unit_for
from edgefl.report.statistics import Estimate, mean_or_none
from edgefl.report.table import Table, figures, words
from edgefl.units import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Starts = Mapping[datetime, Mapping[str, Sequence[SeedResult]]]
"""The results of each method's seeds, by the instant at which they began."""


def starts_between(start: str | None, hours: str) -> list[datetime]:
    """The full hours after a scenario's ``start``, without the last one.

    >>> [each.isoformat() for each in starts_between("2026-03-28T18:00+01:00", "23h..25h")]
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
    return [datetime.fromisoformat(str(start)) + timedelta(hours=each) for each in range(int(begin), int(end))]


class _Measure(NamedTuple):
    """A figure by the hour: its heading, its dimension, its name in CSV, and its place in a seed's entry."""

    head: str
    dimension: str
    key: str
    place: Sequence[Any]
    cost: bool = False  # the least one is the best

    def of(self, seeds: Sequence[SeedResult]) -> Estimate | None:
        """The mean over seeds; ``None`` if one has no value."""
        return mean_or_none([self._value(seed.written()) for seed in seeds])

    def _value(self, entry: Any) -> float | None:
        for part in self.place:
            entry = entry[part] if isinstance(part, int) else entry.get(part)
        return entry  # type: ignore[no-any-return]


def _measures(starts: Starts) -> list[_Measure]:
    every = [seed for of in starts.values() for seeds in of.values() for seed in seeds]
    first, metric = every[0], every[0].metric.metric
    priced = [each for each in PRICED.values() if at(first, each.name) is not None]
    if not priced:
        raise UserError("expected a scenario with prices", file="--start")
    found = [_Measure("time", "seconds", "seconds", ["seconds"])]
    found += [_Measure(each.head, each.unit, each.name, [each.name], cost=True) for each in priced]
    if any(each.metric.final is not None for each in every):
        found.append(_Measure(metric.word, metric.dimension, "metric", ["metric", "final"]))
        for number, target in enumerate(first.targets):
            for each in [each for each in priced if each.limit]:
                head, key = (
                    f"{each.head} to {limit(target.value, metric.dimension)}",
                    f"{each.name}_to_{target.value:g}",
                )
                found.append(_Measure(head, each.unit, key, ["targets", number, each.name], cost=True))
        for number, budget in enumerate(first.budgets):
            head = f"{metric.word} within {limit(budget.limit, budget.kind)}"
            key, place = f"metric_within_{budget.kind}", ["budgets", number, "metric"]
            found.append(_Measure(head, metric.dimension, key, place))
    return found


def starts_table(starts: Starts) -> Table:
    """A row for each method and start, and for each cost the best start and what the worst one costs.

    A start whose training the finished run does not have to the end is in the table, and not compared.
    """
    places = [(start, label) for label in next(iter(starts.values())) for start in starts]
    results = [starts[start][label] for start, label in places]
    short = [any(seed.stop.reason == "trained" for seed in seeds) for seeds in results]
    columns = [words("method", [label for _, label in places], "method"),
               words("start", [f"{start:%Y-%m-%d %H:%M}" for start, _ in places], "start")]  # fmt: skip
    notes = []
    for measure in _measures(starts):
        found = [measure.of(seeds) for seeds in results]
        columns.append(figures(measure.head, found, measure.dimension, measure.key, spread=True))
        for label in dict.fromkeys(label for _, label in places) if measure.cost else ():
            known = {start: mean.mean for (start, name), mean, ends in zip(places, found, short, strict=True)
                     if name == label and mean is not None and not ends}  # fmt: skip
            if len(known) > 1:
                notes.append(_best(label, measure, known))
    if any(short):
        names = ", ".join(
            f"{label} at {start:%H:%M}" for (start, label), ends in zip(places, short, strict=True) if ends
        )
        notes.append(f"Not compared, because other clients would have trained: {names}.")
    zone = next(iter(starts)).strftime("%z")
    return Table(columns, [*notes, f"Starts at {zone[:3]}:{zone[3:]}; nothing was trained again."])


def _best(label: str, measure: _Measure, known: Mapping[datetime, float]) -> str:
    least, most = min(known, key=lambda start: known[start]), max(known, key=lambda start: known[start])
    times = f", {known[most] / known[least]:.3g} times as much" if known[least] > 0 else ""
    return (
        f"{label}, {measure.head}: best at {least:%Y-%m-%d %H:%M}, {quantity(known[least], measure.dimension)}; "
        f"at {most:%H:%M}, the worst, {quantity(known[most], measure.dimension)}{times}."
    )


def starts_figure(starts: Starts) -> Figure:
    """A panel for each of grams and euros, with a line for each method."""
    measures = [each for each in _measures(starts) if each.key in PRICED]
    figure = new_figure(figsize=(4.5 * max(1, len(measures)), 3.6), layout="constrained")
    axes = figure.subplots(1, max(1, len(measures)), squeeze=False)[0]
    for ax, measure in zip(axes, measures, strict=False):
        lines: dict[str, list[Estimate | None]] = {
            label: [measure.of(of[label]) for of in starts.values()] for label in next(iter(starts.values()))
        }
        unit = unit_for([each.mean for line in lines.values() for each in line if each], measure.dimension)
        first = next(iter(starts))
        hours = [(start - first).total_seconds() / 3600 for start in starts]
        for label, line in lines.items():
            ax.step(
                hours, [each.mean / unit.scale if each else float("nan") for each in line], where="mid", label=label
            )
        ax.set_xlabel(f"start, hours after {first:%Y-%m-%d %H:%M%z}")
        ax.set_ylabel(f"{measure.head}, {unit.symbol}")
        plain(ax)
    axes[0].legend(frameon=False)
    return figure
