"""The comparison as data: one row a method, each figure a mean with its interval over the seeds."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefl.errors import UserError
from edgefl.record.figures import QUANTITIES, Quantity, at, figure
from edgefl.record.metric import Metric
from edgefl.record.summary import SeedResult
from edgefl.report.paired import seconds_to
from edgefl.report.quantities import LADDERS, limit
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, TimeToTarget, mean_or_none, time_to_target
from edgefl.wording import grouped, listed, without_method

METRIC = "metric"
"""The unit of figures that are values of the run's metric, in whatever it is shown."""


def _outcome(path: str, unit: str, head: str, *, whole: bool = False) -> Quantity:
    return Quantity(path.replace(".", "_"), unit, head=head, path=path, whole=whole)


OUTCOME = (
    _outcome("accuracy.final", "fraction", "accuracy"),
    _outcome("accuracy.best", "fraction", "best accuracy"),
    _outcome("metric.final", METRIC, "metric"),
    _outcome("metric.best", METRIC, "best metric"),
    _outcome("clients.mean", METRIC, "mean of clients", whole=True),
    _outcome("clients.worst_tenth", METRIC, "worst tenth of clients", whole=True),
    _outcome("clients.cumulative", METRIC, "all clients' samples", whole=True),
    _outcome("personalisation.mean", METRIC, "personalised, mean", whole=True),
    _outcome("personalisation.worst_tenth", METRIC, "personalised, worst tenth", whole=True),
    _outcome("personalisation.cumulative", METRIC, "personalised, all samples", whole=True),
    _outcome("ensemble.final", METRIC, "ensemble", whole=True),
)


def all_figures() -> list[Quantity]:
    """All figures; the times to targets are between those of the outcome and those of the cost."""
    return [*OUTCOME, *(each for each in QUANTITIES.values() if each.head or each.of)]


@dataclass(frozen=True)
class Row:
    """One method of one run over its seeds; ``row["accuracy.final"]`` is a figure of the summary.

    Figures are those of the end of the last round within all budgets, but for those of the whole run.
    """

    run: str  # the scenario's name, or the folder's where two runs share a scenario
    label: str  # the method's label
    seeds: int  # number of seeds
    # by path, those of the parts that every seed's summary has; None if a seed has no value
    figures: dict[str, Estimate | None]
    # time to each target by its value, in seconds; empty if the run trained nothing
    targets: dict[float, TimeToTarget]
    stops: tuple[tuple[str, int], ...]  # the number of seeds that ended for each reason, most frequent first
    messages: dict[str, str]  # for each reason of an early end, the message of the first seed
    metric: Metric  # the metric of the run's models
    smoothed: Estimate | None = None  # the metric's moving average if targets refer to it
    # the updates that were not aggregated because clients were late or dropped out, of how many
    lost: tuple[int, int] = (0, 0)

    def __getitem__(self, path: str) -> Estimate | None:
        """Return a figure; ``None`` if a seed has no value."""
        return self.figures.get(path)

    def looks(self, quantity: Quantity) -> tuple[str, str]:
        """The heading of a figure, and the dimension in which it is shown."""
        if quantity.unit != METRIC:
            return quantity.head, quantity.unit
        return quantity.head.replace("metric", self.metric.word), self.metric.dimension

    def total(self, path: str) -> int:
        """Return the sum of a count over the seeds."""
        found = self[path]
        return round(self.seeds * found.mean) if found else 0

    @property
    def final(self) -> Estimate | None:
        """The metric by which methods are compared; ``None`` if a seed has none."""
        return self.smoothed or self["accuracy.final"] or self["metric.final"]


def comparison_rows(*runs: RunResult) -> list[Row]:
    """One row a method, runs in the order given and methods in their scenario's order."""
    metrics = sorted({run.metric.name for run in runs})
    if len(metrics) > 1:
        raise UserError(f"expected runs with the same metric, found {' and '.join(metrics)}")
    return [_row(name, label, of, run) for name, run in named(runs).items() for label, of in run.moments.items()]


def named(runs: Sequence[RunResult]) -> dict[str, RunResult]:
    """The runs by unique names: their scenarios', the values that differ, the folders', or the paths."""
    own, *others = zip(*(run.names for run in runs), strict=True)
    numbered = [f"{run.names[-1]} ({number})" for number, run in enumerate(runs, 1)]
    values = differing_values(runs)
    few = values if 0 < len(values) <= MOST_PATHS else {"": [""] * len(runs)}
    by_values = [", ".join(map("=".join, zip(few, each, strict=True))) for each in zip(*few.values(), strict=True)]
    choices = (own, by_values, *others, numbered)
    return dict(zip(next(names for names in choices if len(set(names)) == len(runs)), runs, strict=True))


def named_methods(runs: Sequence[RunResult]) -> list[tuple[RunResult, str, str]]:
    """Each method of each run: the run, the label, and its name, which begins with the run's if there are several."""
    names = [(name, run, label) for name, run in named(runs).items() for label in run.labels]
    return [(run, label, f"{name}: {label}" if len(runs) > 1 else label) for name, run, label in names]


def differing_values(runs: Sequence[RunResult]) -> dict[str, list[str]]:
    """Each run's value, in words, of what differs; if all runs have a ``setting``, of what it sets, in its order."""
    given = dict.fromkeys(path for run in runs for path in run.setting or ())
    if not given or any(run.setting is None for run in runs):
        given = dict.fromkeys(differing([run.scenario for run in runs]))
    flat = [{**flat_values(run.scenario), **(run.setting or {})} for run in runs]
    ends = ("", ".name", ".rate", ".kind")  # of a mapping, one value stands for all
    values = {
        name: [option_words(path, next((each[path + of] for of in ends if path + of in each), None)) for each in flat]
        for path, name in short_paths(list(given)).items()
    }
    return {name: each for name, each in values.items() if len(set(each)) > 1 or name.endswith("profile")}


MOST_PATHS = 3
"""Runs are named by the values of at most as many paths of their scenarios."""


def differing(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths of the values that differ between scenarios, a profile as one; the name and the seeds do not count."""
    flat = [flat_values(each) for each in scenarios]
    paths = dict.fromkeys(path for each in flat for path in each)
    same = ("name", "seeds")
    found = [p for p in paths if p.split(".")[0] not in same and any(each.get(p) != flat[0].get(p) for each in flat)]
    whole = re.compile(r"^(fleet\.\d+\.profile)\..*|(?<=\.)(up|down)\.rate$")
    return list(dict.fromkeys(whole.sub(r"\1\2", path) for path in found))


def option_words(path: str, value: Any) -> str:
    """A value of a scenario with its unit, if its path tells one.

    >>> [option_words(f"network.{path}", value) for path, value in (("up.rate", 2e6), ("up", 1.0), ("latency", 0.08))]
    ['2 Mbit/s', '1 bit/s', '80 ms']
    """
    name = path.rpartition(".")[2]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
    if path.startswith("network.") and name in ("rate", "down", "up", "low", "high"):
        symbol, scale = ("Gbit/s", 1e9) if value >= 1e9 else ("bit/s", 1.0) if 0 < value < 1e3 else ("Mbit/s", 1e6)
        return f"{value / scale:g} {symbol}"
    kind = "seconds" if name in ("latency", "deadline") else name.replace("rounds", "")  # its name is its unit
    return limit(value, kind) if kind in LADDERS else f"{value:.6g}" if isinstance(value, float) else str(value)


def flat_values(data: Any, path: str = "") -> dict[str, Any]:
    """The values of nested mappings and lists by dotted path."""
    if isinstance(data, Mapping | list) and data:
        items = data.items() if isinstance(data, Mapping) else enumerate(data)
        return {
            inner: value
            for key, each in items
            for inner, value in flat_values(each, f"{path}.{key}" if path else str(key)).items()
        }
    return {path: data}


def short_paths(paths: Sequence[str]) -> dict[str, str]:
    """The shortest end of each path that is unique and has a meaningful name.

    >>> list(short_paths(["training.local.lr", "data.partition.kind", "methods.1.mu", "methods.2.mu"]).values())
    ['lr', 'partition.kind', '1.mu', '2.mu']
    """

    def ends(path: str) -> list[str]:
        names = path.split(".")
        least = 2 if names[-1] in ("kind", "name", "method") or names[-1].isdigit() else 1
        return [".".join(names[-count:]) for count in range(min(least, len(names)), len(names) + 1)]

    def unique(end: str, path: str) -> bool:
        return not any(f".{other}".endswith(f".{end}") for other in paths if other != path)

    return {path: next((end for end in ends(path) if unique(end, path)), path) for path in paths}


def described(runs: Sequence[RunResult]) -> list[dict[str, object]]:
    """For JSON: each run's name, which depends on the other runs shown, and its path, which does not."""
    return [
        {"run": name, "path": str(run.given), **({} if run.setting is None else {"setting": run.setting})}
        for name, run in named(runs).items()
    ]


def _row(name: str, label: str, results: Sequence[SeedResult], run: RunResult) -> Row:
    metric, measured = run.metric, results if run.trained else ()
    values = list(dict.fromkeys(target.value for result in measured for target in result.targets))
    spent = results if len({each.rounds > 0 for each in results}) < 2 else ()  # one without a round has no costs
    hidden = "metric" if metric.is_accuracy else "accuracy"
    return Row(
        run=name,
        label=label,
        seeds=len(results),
        figures={
            each.place or each.name: mean_or_none(
                # those of an untrained model do not count
                [None if each in OUTCOME and result.trained_nothing else figure(result, each) for result in found]
            )
            for each in all_figures()
            for found in [results if each.whole or each.unit == "count" else spent]
            if (part := each.place.partition(".")[0]) != hidden
            and all(not part or getattr(result, part, None) is not None for result in results)
        },
        targets={value: time_to_target([seconds_to(value, result) for result in results]) for value in values},
        stops=tuple(Counter(result.stop.reason for result in results).most_common()),
        messages={result.stop.reason: result.stop.message for result in reversed(results) if result.stop.message},
        metric=metric,
        smoothed=mean_or_none([result.metric.ema for result in measured]) if run.smoothed else None,
        lost=_lost(label, results, run),
    )


def _lost(label: str, results: Sequence[SeedResult], run: RunResult) -> tuple[int, int]:
    places = ("bytes.by_fate.late", "bytes.by_fate.dropped", "transfers.failed")
    if not any(at(each, place) for each in results for place in places):
        return 0, 0
    tables = [run.columns_of(label, each.seed) for each in results]
    began, used = (int(sum(table[name].sum() for table in tables)) for name in ("participants", "aggregated"))
    return began - used, began


def goals(rows: Sequence[Row]) -> list[float]:
    """The values of all targets of these rows, the easiest first."""
    return sorted({goal for row in rows for goal in row.targets}, reverse=rows[0].metric.better == "lower")


ENDS = {"rounds": "last round", "target": "last target", "trained": "last trained round"}
ENDS |= {"stalled": "stall", "diverged": "divergence"}
"""What ended a run, in words; budgets have the names of their quantities."""


def end(reason: str) -> str:
    """What ended a run, in words."""
    quantity = QUANTITIES.get(reason)
    return quantity.limit if quantity is not None and quantity.limit else ENDS.get(reason, reason)


IN_VAIN = ("stalled", "diverged", "fault")
"""The reasons of an early end that no budget and no target gave."""


def ended_by(row: Row) -> str:
    """What ended the method's seeds: ``time``, or ``time 2/3, traffic 1/3``."""
    if len(row.stops) == 1:
        return end(row.stops[0][0])
    return ", ".join(f"{end(reason)} {count}/{row.seeds}" for reason, count in row.stops)


def none_completed_a_round(rows: Sequence[Row]) -> bool:
    """Whether every run of all rows ended by a stall, divergence or fault before its first round ended."""
    ended = all(reason in IN_VAIN for row in rows for reason, _ in row.stops)
    return ended and not any(row.total("rounds") for row in rows)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Sentences about early ends, refused jobs and lost updates; with the run's name if there are several runs."""
    several = len({row.run for row in rows}) > 1
    found = [
        (text, f"{row.run}: {row.label}" if several else row.label)
        for row in rows
        for text in [*_early_ends(row), *_lost_work(row)]
    ]
    return [f"{', '.join(who)}: {text}." for text, who in grouped(found).items()]


def _early_ends(row: Row) -> list[str]:
    found = []
    for reason, count in row.stops:
        if (message := row.messages.get(reason)) is not None:
            which = f" ({count} of {row.seeds} seeds)" if row.seeds > 1 else ""
            message = without_method(message.rstrip("."), row.label).removeprefix(f"{reason} ")
            hint = ""
            if reason == "diverged" and row.metric.name in ("rmse", "mae") and "in round 1:" in message:
                hint = "; scale the targets to a deviation of about 1, or lower training.local.lr"
            found.append(f"ended by {end(reason)}{which}: {message}{hint}")
    return found


_WORK = (
    ("refused", "refused jobs, for which a device has too little memory (edgefl plan names the devices): {0}"),
    ("rounds_without_update", "rounds without an update: {0}"),
    ("transfers.breaks", "attempts to transfer that broke at a time-out: {0}"),
    ("transfers.retries", "repeated attempts: {0}"),
    ("transfers.failed", "failed transfers: {0}"),
)


def _lost_work(row: Row) -> list[str]:
    found = [words.format(count) for path, words in _WORK if (count := row.total(path))]
    lost, of = row.lost
    if 0 < lost < of:
        found.append(f"updates of late or lost clients: {lost} of {of}")
    return [f"{listed(found)}{f' (all {row.seeds} seeds)' if row.seeds > 1 else ''}"] if found else []
