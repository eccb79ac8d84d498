"""The comparison as data: one row a method, each figure a mean with its interval over the seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgefl.errors import UserError
from edgefl.record.kinds import Lost
from edgefl.record.metric import Metric
from edgefl.record.summary import SeedResult
from edgefl.report.figures import FIGURES, METRIC, Figure
from edgefl.report.quantities import CUT_OFF, cut_off, estimate
from edgefl.report.run_record import RunRecord
from edgefl.report.statistics import Estimate, TimeToTarget, mean_or_none, time_to_target
from edgefl.wording import listed, without_method

_REASONS: dict[Lost, str] = {"late": "were late", "dropped": "dropped out"}


class LostUpdates(NamedTuple):
    """Participations whose update was not aggregated, all seeds together.

    Attributes:
        updates: their number.
        participations: the number of all participations.
        reasons: why, in words.
    """

    updates: int
    participations: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One method of one run over its seeds; ``row["accuracy.final"]`` is a figure of the summary.

    Attributes:
        run: the scenario's name, or the folder's where two runs share a scenario.
        label: the method's label.
        seeds: number of seeds.
        figures: by path, those of the parts that every seed's summary has; ``None`` if a seed has no value.
        targets: time to each target by its value, in seconds; empty if the run trained nothing.
        metric: the metric of the run's models.
        lost: how many updates were not aggregated; ``None`` if no client was late or dropped out.
        stops: the number of seeds that ended for each reason, most frequent first.
        messages: for each reason of an early end, the message of the first seed.
    """

    run: str
    label: str
    seeds: int
    figures: dict[str, Estimate | None]
    targets: dict[float, TimeToTarget]
    stops: tuple[tuple[str, int], ...]
    messages: dict[str, str]
    metric: Metric
    lost: LostUpdates | None = None

    def __getitem__(self, path: str) -> Estimate | None:
        """Return a figure; ``None`` if a seed has no value."""
        return self.figures.get(path)

    def total(self, path: str) -> int:
        """Return the sum of a count over the seeds."""
        found = self[path]
        return round(self.seeds * found.mean) if found else 0


def comparison_rows(*runs: RunRecord) -> list[Row]:
    """One row a method, runs in the order given and methods in their scenario's order.

    Raises:
        UserError: the runs have different metrics.
    """
    names, metrics = run_names(runs), sorted({run.metric.name for run in runs})
    if len(metrics) > 1:
        raise UserError(f"expected runs with the same metric, found {' and '.join(metrics)}")
    return [
        _row(name, label, results, run)
        for name, run in zip(names, runs, strict=True)
        for label, results in run.results.items()
    ]


def run_names(runs: Sequence[RunRecord]) -> list[str]:
    """A unique name for each run: its scenario's, else its folder's, else its path."""
    for names in zip(*(run.names for run in runs), strict=True):
        if len(set(names)) == len(names):
            return list(names)
    return [f"{run.names[-1]} ({number})" for number, run in enumerate(runs, 1)]


def described(runs: Sequence[RunRecord]) -> list[dict[str, object]]:
    """For JSON: each run's name, which depends on the other runs shown, and its path, which does not."""
    return [
        {"run": name, "path": str(run.given), **({} if run.setting is None else {"setting": run.setting})}
        for name, run in zip(run_names(runs), runs, strict=True)
    ]


def by_run(sentences: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Sentences by run; sentences that all runs share are at the end, once.

    >>> by_run({"lr=0.1": ["a wins.", "One seed."], "lr=0.2": ["b wins.", "One seed."]})
    [('lr=0.1', ['a wins.']), ('lr=0.2', ['b wins.']), ('every run', ['One seed.'])]
    """
    first, *others = sentences.values()
    shared = [line for line in first if others and all(line in lines for lines in others)]
    own = {run: [line for line in lines if line not in shared] for run, lines in sentences.items()}
    return [(run, lines) for run, lines in (*own.items(), ("every run", shared)) if lines]


def notes(rows: Sequence[Row]) -> list[str]:
    """Remarks that are needed to read the rows correctly, one sentence each."""
    lines = []
    counts = sorted({row.seeds for row in rows})
    if counts == [1]:
        lines.append("One seed: figures without an interval.")
    elif counts:
        several = " or ".join(str(count) for count in counts)
        lines.append(f"Mean ± half width of the 95 % interval (Student's t) over {several} seeds.")
    shown = [figure for figure in FIGURES if figure.dimension != "count" or figure.head]
    fractions, others = (
        [row[figure.path] for row in rows for figure in shown if (dimension_of(figure, row) == "fraction") == share]
        for share in (True, False)
    )
    if cut_off(fractions, [*others, *(found.mean for row in rows for found in row.targets.values())]):
        lines.append(CUT_OFF)
    if any(target.reached not in (0, target.seeds) for row in rows for target in row.targets.values()):
        lines.append(
            "A seed that does not reach a target counts as later than all seeds that reach it. If only some seeds "
            "reach it, the table shows their number, and the median if more than half reach it, but no mean."
        )
    if rows and all(final_of(row) is None for row in rows):
        lines.append("No trained model was evaluated: time, traffic and energy only.")
    ends = early_ends(rows)
    lines += with_run_names(rows, lambda row: [*ends.get((row.run, row.label), ()), *_of(row)])
    return lines + _compared_with_optimum(rows)


def with_run_names(rows: Sequence[Row], sentences: Callable[[Row], list[str]]) -> list[str]:
    """The sentences about rows, with the run's name in front if there are several runs."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.run, []).extend(sentences(row))
    if len(found) < 2:
        return [line for each in found.values() for line in each]
    return [f"{run}: {line}" for run, each in by_run(found) for line in each]


def _of(row: Row) -> list[str]:
    """Remarks about one method of one run."""
    lines = lost_work(row)
    actual, uniform, age = (row[f"blocks.{name}"] for name in ("actual", "uniform", "front_age"))
    if actual is not None and uniform is not None:
        lines.append(
            f"{row.label} downloads {estimate(actual, 'bytes')} by the blocks' actual bytes, "
            f"{estimate(uniform, 'bytes')} if each block counts as 1/M of the model."
        )
    if age is not None:
        lines.append(
            f"{row.label}: the front blocks that a client keeps were last sent to it "
            f"{estimate(age, 'rounds')} before it trains them, on average."
        )
    return lines


def _compared_with_optimum(rows: Sequence[Row]) -> list[str]:
    """How much longer the rounds are than the shortest possible ones, in one sentence for all methods of a run."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if (ratio := row["ratio_to_optimum"]) is not None:
            found.setdefault(row.run, []).append(f"{estimate(ratio, 'number')} ({row.label})")
    name = len({row.run for row in rows}) > 1
    return [
        f"{f'{run}: ' if name else ''}Rounds last at most {', '.join(ratios)} times as long as the shortest possible "
        "ones with as many updates, from any clients (mean over the rounds)."
        for run, ratios in found.items()
    ]


def lost_work(row: Row) -> list[str]:
    """Sentences about a method's refused jobs and its rounds without an update, all seeds together."""
    refused, without, rounds = map(row.total, ("refused", "rounds_without_update", "rounds"))
    of_all = f" (all {row.seeds} seeds together)" if row.seeds > 1 else ""
    lines = []
    if refused:
        jobs, need = ("job was", "it needs") if refused == 1 else ("jobs were", "they need")
        lines.append(
            f"{row.label}: {refused} {jobs} refused{of_all}, because a device has less memory than {need} "
            "(edgefl plan names the devices)."
        )
    if without:
        lines.append(f"{row.label}: no update was aggregated in {without} of {rounds} rounds{of_all}.")
    return [*lines, *_not_aggregated(row, of_all), *_broken(row, of_all)]


def _broken(row: Row, of_all: str) -> list[str]:
    """A sentence about attempts to transfer something that broke, and transfers that failed, all seeds together."""
    breaks, again, failed = (row.total(f"transfers.{name}") for name in ("breaks", "retries", "failed"))
    if not breaks:
        return []
    attempts = "1 attempt" if breaks == 1 else f"{breaks} attempts"
    followed = "each" if again == breaks else str(again)
    ends = f", and {failed} {'transfer' if failed == 1 else 'transfers'} failed" if failed else ""
    return [
        f"{row.label}: {attempts} to transfer something broke at a time-out{of_all}; {followed} "
        f"{'was' if again in {breaks, 1} else 'were'} followed by another attempt{ends}."
    ]


def _not_aggregated(row: Row, of_all: str) -> list[str]:
    """A sentence about the participations whose update was not aggregated, all seeds together."""
    if row.lost is None or not 0 < row.lost.updates < row.lost.participations:
        return []
    lost, participations, reasons = row.lost
    why = f"because clients {' or '.join(reasons)}"
    return [f"{row.label}: {lost} of {participations} updates were not aggregated{of_all}, {why}."]


def dimension_of(figure: Figure, row: Row) -> str:
    """The dimension in which a figure of a row is shown."""
    return row.metric.dimension if figure.dimension == METRIC else figure.dimension


def final_of(row: Row) -> Estimate | None:
    """The metric of the last model; ``None`` if a seed has none."""
    return row["accuracy.final"] or row["metric.final"]


def _row(name: str, label: str, results: Sequence[SeedResult], run: RunRecord) -> Row:
    metric, measured = run.metric, results if run.trained else ()
    values = list(dict.fromkeys(target.value for result in measured for target in result.targets))
    hidden = "metric" if metric.is_accuracy else "accuracy"
    return Row(
        run=name,
        label=label,
        seeds=len(results),
        figures={
            figure.path: mean_or_none([figure.of(result) for result in results])
            for figure in FIGURES
            if figure.part != hidden and all(getattr(result, figure.part) is not None for result in results)
        },
        targets={value: time_to_target([seconds_to(value, result) for result in results]) for value in values},
        stops=tuple(Counter(result.stop.reason for result in results).most_common()),
        messages={result.stop.reason: result.stop.message for result in reversed(results) if result.stop.message},
        metric=metric,
        lost=_lost(label, results, run),
    )


def _lost(label: str, results: Sequence[SeedResult], run: RunRecord) -> LostUpdates | None:
    fates = {fate for each in results for fate, amount in each.bytes.by_fate.items() if amount}
    if any(each.transfers is not None and each.transfers.failed for each in results):
        fates.add("dropped")
    reasons = tuple(words for fate, words in _REASONS.items() if fate in fates)
    if not reasons:
        return None
    tables = [run.rounds_of(label, each.seed) for each in results]
    counts = ("participants", "aggregated")
    began, used = (sum(sum(table.column(name).to_pylist()) for table in tables) for name in counts)
    return LostUpdates(began - used, began, reasons)


def seconds_to(value: float, result: SeedResult) -> float | None:
    """When a seed reached a target; ``None`` if it did not."""
    return next((found.seconds for found in result.targets if found.value == value and found.reached), None)


ENDS = {
    "rounds": "at the last round",
    "target": "at the last target",
    "stalled": "by a stall",
    "diverged": "by divergence",
    "fault": "by a fault",
    "trained": "at the last trained round",
}
"""How a run ended, in words; budgets are named by their limits."""

IN_VAIN = ("stalled", "diverged", "fault")
"""The reasons of an early end that no budget and no target gave."""

_WITH_A_UNIT = ("rmse", "mae")
"""Metrics of regression, whose targets may have any scale."""


def none_completed_a_round(rows: Sequence[Row]) -> bool:
    """Whether every run of all rows ended by a stall, divergence or fault before its first round ended."""
    ended = all(reason in IN_VAIN for row in rows for reason, _ in row.stops)
    return ended and not any(row.total("rounds") for row in rows)


def early_ends(rows: Sequence[Row]) -> dict[tuple[str, str], list[str]]:
    """The sentences, by run and label of the first method that each is about."""
    groups: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
    for row in rows:
        for reason, count in row.stops:
            if (message := row.messages.get(reason)) is not None:
                which = f" ({count} of {row.seeds} seeds)" if row.seeds > 1 else ""
                message = message.rstrip(".") + _hint(row, reason, message)
                key = row.run, reason, which, without_method(message, row.label)
                groups.setdefault(key, []).append((row.label, message))
    sentences: dict[tuple[str, str], list[str]] = {}
    for (run, reason, which, shared), found in groups.items():
        labels = [label for label, _ in found]
        cause = found[0][1] if len(found) == 1 else shared
        sentence = f"{listed(labels)} ended {ENDS.get(reason, f'by {reason}')}{which}: {cause}."
        sentences.setdefault((run, labels[0]), []).append(sentence)
    return sentences


def _hint(row: Row, reason: str, message: str) -> str:
    if reason != "diverged" or row.metric.name not in _WITH_A_UNIT or "diverged in round 1:" not in message:
        return ""
    return "; scale the targets to a deviation of about 1, or lower training.local.lr"
