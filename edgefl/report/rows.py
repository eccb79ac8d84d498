"""The comparison as data: one row a method, each figure a mean with its interval over the seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgefl.record.summary import SeedResult
from edgefl.report.quantities import CUT_OFF, cut_off, estimate
from edgefl.report.run_record import RunRecord
from edgefl.report.statistics import Estimate, TimeToTarget, mean_interval, mean_or_none, time_to_target

ENDS = {
    "rounds": "the last round",
    "target": "the last target reached",
    "stalled": "a stall",
    "diverged": "divergence",
    "fault": "a fault",
}
"""Why a run ended, in words; budgets are named by their limits."""


@dataclass(frozen=True)
class Row:
    """One method of one run over its seeds.

    Attributes:
        run: the scenario's name, or the folder's where two runs share a scenario.
        label: the method's label.
        seeds: number of seeds.
        final, best: accuracy in [0, 1]; ``None`` if nothing was trained.
        further: other measured accuracies by model and kind: of the temporal ensemble, of the final model on each
            client's own test part, and the same after personalisation.
        targets: time to each target by its accuracy, in seconds; empty if the run trained nothing.
        seconds: virtual time at the end.
        rounds: aggregations.
        without_update: rounds in which no update was aggregated.
        refused: jobs for which a device had too little memory.
        bytes_down, bytes_up, bytes_wasted: bytes over the run.
        joules: energy of all devices.
        exposed_seconds, hidden_seconds: transfers on the rounds' critical paths.
        down_actual, down_uniform: download bytes by each block's actual bytes, and by alpha/M of the model; only if
            the method sends part of the model.
        front_age: mean age in rounds of the blocks that clients train but did not receive, if there are any.
        stops: the number of seeds that ended for each reason, most frequent first.
        messages: for each reason of an early end, the message of the first seed.
    """

    run: str
    label: str
    seeds: int
    final: Estimate | None
    best: Estimate | None
    further: dict[tuple[str, str], Estimate]
    targets: dict[float, TimeToTarget]
    seconds: Estimate
    rounds: Estimate
    without_update: Estimate
    refused: Estimate
    bytes_down: Estimate
    bytes_up: Estimate
    bytes_wasted: Estimate
    joules: Estimate
    exposed_seconds: Estimate
    hidden_seconds: Estimate
    down_actual: Estimate | None
    down_uniform: Estimate | None
    front_age: Estimate | None
    stops: tuple[tuple[str, int], ...]
    messages: dict[str, str]


def comparison_rows(*runs: RunRecord) -> list[Row]:
    """One row a method, runs in the order given and methods in their scenario's order."""
    names = run_names(runs)
    return [
        _row(name, label, results, trained=run.trained)
        for name, run in zip(names, runs, strict=True)
        for label, results in run.results.items()
    ]


def run_names(runs: Sequence[RunRecord]) -> list[str]:
    """A unique name for each run: its scenario's, else its folder's, else its path."""
    for names in zip(*(run.names for run in runs), strict=True):
        if len(set(names)) == len(names):
            return list(names)
    return [f"{run.names[-1]} ({number})" for number, run in enumerate(runs, 1)]


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
    accuracies = [value for row in rows for value in (row.final, row.best, *row.further.values())]
    if cut_off(accuracies, (value for row in rows for value in _beyond_accuracy(row))):
        lines.append(CUT_OFF)
    if any(target.reached not in (0, target.seeds) for row in rows for target in row.targets.values()):
        lines.append(
            "A seed that does not reach a target counts as later than all seeds that reach it. If only some seeds "
            "reach it, the table shows their number, and the median if more than half reach it, but no mean."
        )
    if rows and all(row.final is None for row in rows):
        lines.append("Nothing was trained: time, traffic and energy only.")
    return lines + with_run_names(rows, _of)


def _beyond_accuracy(row: Row) -> list[Estimate | None]:
    spent = [row.seconds, row.rounds, row.joules, row.bytes_down, row.bytes_up, row.bytes_wasted]
    waited = [row.exposed_seconds, row.hidden_seconds]
    return [*spent, *waited, row.front_age, *(found.mean for found in row.targets.values())]


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
    lines = []
    for reason, count in row.stops:
        if reason in row.messages:
            which = f" ({count} of {row.seeds} seeds)" if row.seeds > 1 else ""
            message = row.messages[reason].rstrip(".")
            lines.append(f"{row.label} ended by {ENDS.get(reason, reason)}{which}: {message}.")
    lines += lost_work(row)
    if row.down_actual is not None and row.down_uniform is not None:
        lines.append(
            f"{row.label} downloads {estimate(row.down_actual, 'bytes')} by the blocks' actual bytes, "
            f"{estimate(row.down_uniform, 'bytes')} if each block counts as 1/M of the model."
        )
    if row.front_age is not None:
        lines.append(
            f"{row.label}: the front blocks that a client keeps were last sent to it "
            f"{estimate(row.front_age, 'rounds')} before it trains them, on average."
        )
    return lines


def lost_work(row: Row) -> list[str]:
    """Sentences about a method's refused jobs and its rounds without an update, all seeds together."""
    refused, without, rounds = (round(row.seeds * each.mean) for each in (row.refused, row.without_update, row.rounds))
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
    return lines


def _row(run: str, label: str, results: Sequence[SeedResult], *, trained: bool) -> Row:
    measured = results if trained else ()
    accuracies = list(dict.fromkeys(target.accuracy for result in measured for target in result.targets))
    blocks = [result.blocks for result in results]
    return Row(
        run=run,
        label=label,
        seeds=len(results),
        final=mean_or_none([result.accuracy.final for result in results]),
        best=mean_or_none([result.accuracy.best for result in results]),
        further=_further(results),
        targets={
            accuracy: time_to_target([_seconds_to(accuracy, result) for result in results]) for accuracy in accuracies
        },
        seconds=mean_interval([result.seconds for result in results]),
        rounds=mean_interval([result.rounds for result in results]),
        without_update=mean_interval([result.rounds_without_update for result in results]),
        refused=mean_interval([result.refused for result in results]),
        bytes_down=mean_interval([result.bytes.down for result in results]),
        bytes_up=mean_interval([result.bytes.up for result in results]),
        bytes_wasted=mean_interval([result.bytes.wasted for result in results]),
        joules=mean_interval([result.joules for result in results]),
        exposed_seconds=mean_interval([result.communication.exposed_seconds for result in results]),
        hidden_seconds=mean_interval([result.communication.hidden_seconds for result in results]),
        down_actual=mean_or_none([block.actual if block else None for block in blocks]),
        down_uniform=mean_or_none([block.uniform if block else None for block in blocks]),
        front_age=mean_or_none([block.front_age if block else None for block in blocks]),
        stops=tuple(Counter(result.stop.reason for result in results).most_common()),
        messages={result.stop.reason: result.stop.message for result in reversed(results) if result.stop.message},
    )


def _further(results: Sequence[SeedResult]) -> dict[tuple[str, str], Estimate]:
    figures: dict[tuple[str, str], list[float | None]] = {}
    for result in results:
        for name, found in (("clients", result.clients), ("personalised", result.personalisation)):
            if found is not None:
                figures.setdefault((name, "mean"), []).append(found.mean)
                figures.setdefault((name, "worst tenth"), []).append(found.worst_tenth)
                figures.setdefault((name, "by images"), []).append(found.cumulative)
        if result.ensemble is not None:
            figures.setdefault(("ensemble", "final"), []).append(result.ensemble.final)
    means = {key: mean_or_none(values) for key, values in figures.items()}
    return {key: mean for key, mean in means.items() if mean is not None}


def _seconds_to(accuracy: float, result: SeedResult) -> float | None:
    return next((found.seconds for found in result.targets if found.accuracy == accuracy and found.reached), None)
