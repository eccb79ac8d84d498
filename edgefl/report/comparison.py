"""The comparison of runs in all formats: at a glance, in detail, and what changed between two runs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from edgefl.record.figures import QUANTITIES, Quantity, figure, nested
from edgefl.record.summary import SeedResult
from edgefl.report.choices import choice_table, distance_table
from edgefl.report.error_of_seconds import expected_error, measured_sentences
from edgefl.report.glance import answers, attack, ends, glance, measures, seconds_at, standings, targets, verdict
from edgefl.report.notices import notices
from edgefl.report.paired import (
    FEWEST_SEEDS,
    Comparison,
    compare_metric,
    compare_target,
    compared,
    difference_data,
    figures_by_seed,
)
from edgefl.report.quantities import estimate, limit, unit_for
from edgefl.report.rows import (
    OUTCOME,
    Row,
    all_figures,
    comparison_rows,
    described,
    differing_values,
    named,
    named_methods,
    remarks,
)
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import NO_ESTIMATE, Estimate, TimeToTarget
from edgefl.report.table import MISSING, Column, Table, estimate_data, figures, hidden, target_data, words
from edgefl.wording import by_run, counted, listed, span

SHOWN = 6
"""How many differing values of two scenarios are named."""


def comparison(*runs: RunResult, detailed: bool = False) -> Table:
    """One or several runs at a glance or in detail; CSV and JSON contain every figure of the summaries."""
    rows = comparison_rows(*runs)
    shown = details(*runs) if detailed else glance(runs[0]) if len(runs) == 1 else side_by_side(*runs)
    columns = marked(runs[0], shown.columns) if len(runs) == 1 else shown.columns
    described_runs = [
        {**each, "verdict": verdict(run).split("\n"), "notices": notices(run), "differences": difference_data(run)}
        for each, run in zip(described(runs), runs, strict=True)
    ]
    data = {"runs": described_runs, "rows": [_data(row) for row in rows], "notes": remarks(rows)}
    return replace(shown, columns=columns, data=data, files=_everything(rows))


def marked(run: RunResult, columns: Sequence[Column]) -> list[Column]:
    """The columns of a run with the best figures, and those not decided against them, marked; none if all are."""
    found = {head: each.leaders for head, each in standings(run).items() if each and set(each.means) - {*each.leaders}}
    labels = columns[0].cells if columns else ()
    return [
        each._replace(best=frozenset(row for row, label in enumerate(labels) if label in found.get(each.head, ())))
        for each in columns
    ]


def details(*runs: RunResult) -> Table:
    """Every figure with its interval, all differences, and how to read them."""
    rows = comparison_rows(*runs)
    names = _names(rows)
    own, whole = (
        [_figure(each, rows) for each in all_figures() if each.whole == of_whole_run and _is_shown(each, rows)]
        for of_whole_run in (False, True)
    )
    place = sum(not figure.whole and _is_shown(figure, rows) for figure in OUTCOME)
    everything = [*names, *own[:place], *targets(rows, spread=True), *own[place:], ends(rows)]
    notes = [line for run in runs for line in (*attack(run), *measured_sentences(run), *expected_error(run))]
    more = [Table([*names, *whole], (), ["Of the whole run:"])] if whole else []
    for name, run in named(runs).items():
        more += [_differences(run, what, found, f"{name}: " * (len(runs) > 1)) for what, found in _questions(run)]
    for run, label, name in named_methods(runs):
        more += filter(None, (table(run, label, name) for table in (choice_table, distance_table)))
    notes += by_run({name: [*answers(run), *notices(run)] for name, run in named(runs).items()})
    return Table(everything, [*notes, *remarks(rows), *_RULES], more=more)


_RULES = (
    "Figures are means over the seeds ± half their 95 % interval (Student's t), at the end of the last round within "
    "all limits; of a target that only some seeds reach, their number.",
    "Differences are by seed: best method minus the other one. Half an interval is the larger of Student's t, whose "
    "level of 5 % all comparisons of a table share (Holm), and 1.96 √((p₁(1−p₁) + p₂(1−p₂))/n)/√seeds with n test "
    "samples or tokens (other metrics: their last changes; times: a round's length). Not decided: the interval "
    f"includes zero, or there are fewer than {FEWEST_SEEDS} seeds. Claims are about this test set.",
    "p-values are not adjusted; that of sign flips assumes no normal distribution, and with n seeds is at least 2/2ⁿ.",
)


def _questions(run: RunResult) -> list[tuple[str, Comparison]]:
    """What is compared: the metric, each budget of a run that continued beyond it, and each target."""
    found: list[tuple[str, Comparison | None]] = [(run.metric.word, compare_metric(run))]
    if run.option("stop") == "rounds":
        found += [(f"{run.metric.word} within {limit(b[1], b[0])} alone", _within(run, *b)) for b in run.budgets]
    found += [(f"seconds to {limit(goal, run.metric.dimension)}", compare_target(run, goal)) for goal in run.goals]
    return [(what, each) for what, each in found if each is not None and each.differences]


def _within(run: RunResult, kind: str, amount: float) -> Comparison | None:
    """The methods compared by their metric at one budget of a run that continued beyond it."""

    def metric_of(result: SeedResult) -> float | None:
        same = [each for each in result.budgets if (each.kind, each.limit) == (kind, amount)]
        if not same or result.trained_nothing:
            return None
        unspent = same[0].metric is None and figure(result, QUANTITIES[kind]) <= amount
        return result.metric.final if unspent else same[0].metric

    found = figures_by_seed(run, metric_of, whole=True)
    return compared(found, highest=run.metric.better == "higher", unseen=run.scatter) if found else None


def _differences(run: RunResult, what: str, standing: Comparison, name: str) -> Table:
    dimension = "seconds" if what.startswith("seconds") else run.metric.dimension
    found = standing.differences
    shown = [f"{each.label} ({estimate(standing.means[each.label], dimension)})" for each in found]
    best = f"{standing.best} ({estimate(standing.means[standing.best], dimension)})"
    known = [each.interval if math.isfinite(each.interval.high) else None for each in found]

    p_values = {"p (t)": [each.p for each in found], "p (sign flips)": [each.sign_flip_p for each in found]}
    columns = [
        words("minus", shown),
        figures("difference", known, dimension, spread=True),
        words("decided", ["yes" if each.decided else "no" for each in found]),
        Column("confidence", [f"{100 * each.confidence:.4g} %" for each in found]),
        *(Column(head, [MISSING if p is None else f"{p:.2g}" for p in values]) for head, values in p_values.items()),
    ]
    if len(counts := {len(each.values) for each in found}) > 1:
        columns.append(Column("seeds", [str(len(each.values)) for each in found]))
    common = f", {counted(counts.pop(), 'seed')}" if len(counts) == 1 else ""
    return Table(columns, title=[f"{name}{what}: {best}{common}"])


def side_by_side(*runs: RunResult) -> Table:
    """What changed between two runs that share methods and seeds; of other runs a row for each run and method."""
    if len(runs) == 2 and set(runs[0].labels) & set(runs[1].labels) and set(runs[0].seeds) & set(runs[1].seeds):
        return changes(*runs)
    rows = comparison_rows(*runs)
    lines = by_run({name: answers(run)[:1] for name, run in named(runs).items()})
    if len({frozenset(run.seeds) for run in runs}) > 1:
        lines.append("The runs have different seeds, and their figures differ also by these.")
    return Table([*_names(rows), *measures(rows), ends(rows)], [*lines, *remarks(rows)])


def changes(one: RunResult, other: RunResult) -> Table:
    """Two runs, a line for each method that both have: each figure before and after, and its change.

    Figures are of the seeds that completed a round in both; without such a seed there is no change.
    """
    seeds = [{label: {s.seed for s in of if s.rounds} for label, of in run.moments.items()} for run in (one, other)]
    common = {label: found & seeds[1].get(label, set()) for label, found in seeds[0].items()}
    every, counts = len({*one.seeds, *other.seeds}), {len(found) for found in common.values() if found}
    rows, both = comparison_rows(one.of_seeds(common), other.of_seeds(common)), named([one, other])
    before, after = ({row.label: row for row in rows if row.run == name} for name in both)
    labels = [label for label in before if label in after]
    pairs = measures([side[label] for side in (before, after) for label in labels])
    pairs_of = differing_values([one, other]).items()
    changed = [f"{k} {' → '.join(v)}" if v[0] != v[1] else f"{k} {v[0]} (its figures)" for k, v in pairs_of]
    changed[SHOWN:] = [f"{len(changed) - SHOWN} more values"] * (len(changed) > SHOWN)
    alone = [f"{row.run} alone: {row.label}." for row in rows if row.label not in labels]
    if apart := [label for label in labels if not common[label]]:
        alone.append(f"{listed(apart)}: the runs have no common seed with a completed round, so no change is given.")
    if counts and min(counts) < every:
        how_many = f"{span(counts)} of {every} seeds"
        alone.append(f"Figures are of {how_many}, with a round within all limits in both; answers of all.")
    lines = by_run({name: answers(run)[:1] for name, run in both.items()})
    title = [" → ".join(both), *([f"Changed: {'; '.join(changed)}"] if changed else [])]
    known = [bool(common[label]) for label in labels]
    columns = [words("method", labels), *(Column(each.head, _changed(each, known)) for each in pairs)]
    return Table(columns, [*alone, *lines], title)


def _changed(column: Column, known: Sequence[bool]) -> list[str]:
    """A column's first half next to its second one: ``3.19 → 1.62 s (−49 %)``; a share has its change in points."""
    values = [seconds_at(each) if isinstance(each, TimeToTarget) else each for each in column.values]
    cells = []
    for pair, both in zip(zip(values[: len(known)], values[len(known) :], strict=True), known, strict=True):
        means = [each.mean for each in pair if isinstance(each, Estimate)]
        unit, alike = unit_for(means, column.dimension), len(means) == 2  # else each has its own unit
        first, second = (
            unit.number(each.mean) + f" {unit.symbol}" * (not alike) if isinstance(each, Estimate) else each or MISSING
            for each in pair
        )
        change = ""
        if both and alike and means[0] and first != second:
            gap, share = 100 * (means[1] - means[0]), column.dimension == "fraction"
            change = f" ({gap:+.1f})" if share else f" ({gap / means[0]:+.0f} %)"
        shown = first if first == second else f"{first} → {second}"
        cells.append(f"{shown} {unit.symbol * alike}{change}".strip().replace("-", "−"))
    return cells


def _names(rows: Sequence[Row]) -> list[Column]:
    several = len({row.run for row in rows}) > 1
    return [words("run", [row.run for row in rows])] * several + [words("method", [row.label for row in rows])]


def _is_shown(quantity: Quantity, rows: Sequence[Row]) -> bool:
    """Whether a figure has a heading and a value; a count that is zero everywhere has none."""
    values = [value.mean for row in rows if (value := row[quantity.place])] if quantity.head else []
    return any(values) or (bool(values) and quantity.unit != "count" and not quantity.whole)


def _figure(quantity: Quantity, rows: Sequence[Row]) -> Column:
    head, dimension = rows[0].looks(quantity)
    return figures(head, [row[quantity.place] for row in rows], dimension, spread=True)


def _everything(rows: Sequence[Row]) -> list[Column]:
    """The columns of CSV."""
    facts = {"run": "run", "label": "method", "seeds": "seeds"}
    found = [hidden([getattr(row, field) for row in rows], key) for field, key in facts.items()]
    keys = {each.place or each.name: each.name for each in all_figures()}
    shown = {key: name for key, name in keys.items() if any(key in row.figures for row in rows)}
    found += [hidden([row[key] or NO_ESTIMATE for row in rows], name) for key, name in shown.items()]
    stops = [" ".join(f"{reason}:{count}" for reason, count in row.stops) for row in rows]
    return [*found, *targets(rows), hidden(stops, "stop")]


def _data(row: Row) -> dict[str, object]:
    """A row for JSON, with the figures in the same places as in ``summary.json``."""

    def part(of: Iterable[Quantity]) -> dict[str, object]:
        return nested({each.place: estimate_data(row[each.place]) for each in of if each.place in row.figures})

    return {
        "run": row.run,
        "method": row.label,
        "seeds": row.seeds,
        **part(OUTCOME),
        "targets": [{row.metric.name: goal, **target_data(found, "seconds")} for goal, found in row.targets.items()],
        **part(QUANTITIES.values()),
        "stop": [{"reason": why, "seeds": count, "message": row.messages.get(why)} for why, count in row.stops],
    }
