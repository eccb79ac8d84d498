"""The winner on other devices and links: a run timed again on slower and faster ones.

This module reads the file that ``edgefl replay RUN --sensitivity`` writes. Models and metrics are the run's own;
times and costs are those under each condition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.record.metric import Metric
from edgefl.record.sensitivity import DEVICES, OWN, Condition, Devices, Retimed, read_retimed
from edgefl.record.summary import SeedResult
from edgefl.report.curves import as_good, column, metric_of
from edgefl.report.paired import FEWEST_SEEDS, compared
from edgefl.report.quantities import estimate, limit, quantity
from edgefl.report.rows import run_names
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, mean_interval
from edgefl.units import slack

Spent = Literal["seconds", "bytes", "joules"]


class Question(NamedTuple):
    """A question for each condition: which method is first at a target, or best within a budget."""

    kind: Literal["target", "seconds", "bytes", "joules"]  # target, or the kind of the budget
    amount: float  # a value of the metric, or the budget's limit
    metric: Metric  # the run's metric

    @property
    def words(self) -> str:
        """The question as a heading."""
        if self.kind == "target":
            name = "" if self.metric.share else f"{self.metric.word} "
            return f"First at {name}{limit(self.amount, self.metric.dimension)}"
        return f"Best within {limit(self.amount, self.kind)}"


class Answer(NamedTuple):
    """The winner under one condition."""

    # the best method and those not decided against it, with fewer than three seeds the best mean; empty if no method
    # has a figure
    leaders: tuple[str, ...]
    best: Estimate | None  # the figure of the best method: seconds to the target, or the metric within the budget
    least: bool  # whether a method's metric may become better, because its training ended before the budget


@dataclass(frozen=True)
class Sensitivity:
    """A run's rounds under all conditions."""

    run: RunResult  # the run
    retimed: Retimed  # the content of its sensitivity.parquet

    @cached_property
    def _spent(self) -> dict[tuple[str, int, Condition], dict[str, NDArray[np.float64]]]:
        table = self.retimed.rows
        keys = zip(
            *(table[name].to_pylist() for name in ("label", "seed", "devices", "bandwidth", "draw")), strict=True
        )
        rows: dict[tuple[str, int, Condition], list[int]] = {}
        for row, (label, seed, *condition) in enumerate(keys):
            rows.setdefault((label, seed, Condition(*condition)), []).append(row)
        amounts = {name: column(table, name) for name in ("round", "seconds", "bytes", "joules")}
        return {key: {name: values[own] for name, values in amounts.items()} for key, own in rows.items()}

    @cached_property
    def conditions(self) -> list[Condition]:
        """All conditions, from fast to slow devices and from low to high bandwidth, with the run's draw in queues."""
        found = {condition for _, _, condition in self._spent if not condition.draw}
        return sorted(found, key=lambda each: (DEVICES.index(each.devices), each.bandwidth))

    @cached_property
    def draws(self) -> list[Condition]:
        """The run's own devices and bandwidth with each draw of the shares in queues; none with fair queues."""
        drawn = sorted({condition for _, _, condition in self._spent if condition.draw})
        return [OWN, *drawn] if drawn else []

    @cached_property
    def labels(self) -> list[str]:
        """The methods that were timed again with all their seeds, in the scenario's order."""
        every = [*self.conditions, *self.draws]
        return [
            label
            for label, results in self.run.results.items()
            if all((label, result.seed, condition) in self._spent for result in results for condition in every)
        ]

    def questions(self) -> list[Question]:
        """One for each target and each budget of the run."""
        results = [result for label in self.labels for result in self.run.results[label]]
        targets = sorted({target.value for result in results for target in result.targets})
        budgets = dict.fromkeys((budget.kind, budget.limit) for result in results for budget in result.budgets)
        found = [Question("target", value, self.run.metric) for value in targets]
        kinds: tuple[Spent, ...] = get_args(Spent)
        return found + [
            Question(kind, limit, self.run.metric) for own, limit in budgets for kind in kinds if kind == own
        ]

    def total(self, label: str, condition: Condition, kind: Spent) -> Estimate:
        """The total cost of the method's trained rounds, over its seeds."""
        totals = [self._spent[label, result.seed, condition][kind] for result in self.run.results[label]]
        return mean_interval([float(values[-1]) if len(values) else 0.0 for values in totals])

    def answer(self, question: Question, condition: Condition) -> Answer:
        """The winner under a condition."""
        figures: dict[str, dict[int, float]] = {}
        least = False
        for label in (each for each in self.labels if each not in self.run.baselines):
            results = self.run.results[label]
            found = {each.seed: self._figure(label, each, question, condition) for each in results}
            known = {seed: value for seed, (value, _) in found.items() if value is not None}
            if len(known) == len(results):
                figures[label] = known
                least |= any(over for _, over in found.values())
        if not figures:
            return Answer((), None, least=False)
        is_target = question.kind == "target"
        highest = not is_target and self.run.metric.better == "higher"
        standing = compared(figures, highest=highest, unseen=None if is_target else self.run.scatter)
        best, leaders = standing.means[standing.best], standing.leaders
        if standing.seeds < FEWEST_SEEDS:  # nothing is decided, so only the means count
            leaders = [label for label, each in standing.means.items() if each.mean == best.mean]
        return Answer(tuple(leaders), best, least)

    def _figure(
        self, label: str, result: SeedResult, question: Question, condition: Condition
    ) -> tuple[float | None, bool]:
        """The seconds to a target, or the metric of the last model within a budget that may allow further training."""
        amounts = self._spent[label, result.seed, condition]
        values = column(self.run.rounds_of(label, result.seed), metric_of(self.run))[: len(amounts["round"])]
        if question.kind == "target":
            reached = np.flatnonzero(as_good(values, question.amount, self.run.metric))
            return (float(amounts["seconds"][reached[0]]) if len(reached) else None), False
        spent = amounts[question.kind]
        within = np.flatnonzero((spent <= question.amount + slack(question.amount)) & np.isfinite(values))
        over = bool(len(spent)) and bool(spent[-1] < question.amount) and result.stop.reason != "rounds"
        return (float(values[within[-1]]) if len(within) else None), over


def read_sensitivity(run: RunResult) -> Sensitivity | None:
    """Read the file in a run's directory; ``None`` if there is none."""
    if not run.paths.sensitivity.is_file():
        return None
    try:
        return Sensitivity(run, read_retimed(run.path))
    except UserError as error:
        again = f"create it again: edgefl replay {run.path} --sensitivity"
        raise UserError(f"{error.message}; {again}", file=error.file, field=error.field) from None


def robustness(found: Sensitivity) -> list[str]:
    """Sentences for each question: whether the run's winner also wins under the other conditions."""
    return [_sentence(question, found) for question in found.questions()]


def kept_decisions(found: Sensitivity) -> list[str]:
    """Sentences about methods whose decisions depend on times, and about those that could not be timed again."""
    kept = [
        f"{label} decides on {' and '.join(decisions)} by time. The run's decisions are kept; under other conditions "
        "it might decide differently, and only a full run can show that."
        for label, decisions in found.retimed.held.items()
    ]
    return kept + [f"{label} is left out: {reason}" for label, reason in found.retimed.refused.items()]


def _sentence(question: Question, found: Sensitivity) -> str:
    answers = {condition: found.answer(question, condition).leaders for condition in found.conditions}
    own = answers[OWN]
    if not own:
        return f"{question.words}: no method under the run's own conditions."
    others: dict[str, list[Condition]] = {}
    for condition, leaders in answers.items():
        if own[0] not in leaders:
            others.setdefault(leaders[0] if leaders else "No method", []).append(condition)
    stays = len(answers) - sum(map(len, others.values()))
    rivals = f" (not decided: {', '.join(own[1:])})" if len(own) > 1 else ""
    text = f"{question.words}: {own[0]}{rivals}. It leads in {stays} of {len(answers)} conditions."
    if others:
        text += f" {'; '.join(f'{name} leads {_where(conditions)}' for name, conditions in others.items())}."
    if found.draws:
        stays = sum(own[0] in found.answer(question, draw).leaders for draw in found.draws)
        text += f" With {len(found.draws)} draws of the shares in queues it leads in {stays}."
    return text


def _where(conditions: Sequence[Condition]) -> str:
    """Conditions in words.

    >>> _where([Condition("low", 0.7), Condition("low", 1.3), Condition("nominal", 1.3)])
    'with fast devices (70 %, 130 % bandwidth) and with nominal devices (130 % bandwidth)'
    """
    by_devices: dict[Devices, list[str]] = {}
    for each in conditions:
        by_devices.setdefault(each.devices, []).append(limit(each.bandwidth, "fraction"))
    return " and ".join(
        f"with {DEVICE_WORDS[devices]} devices ({', '.join(parts)} bandwidth)" for devices, parts in by_devices.items()
    )


DEVICE_WORDS: dict[Devices, str] = {"low": "fast", "nominal": "nominal", "high": "slow"}
"""Names of devices with all figures at the bound with the least, the nominal or the most seconds and joules."""


def figure_of(answer: Answer, question: Question) -> str:
    """The best method's figure as text, with ``≥`` or ``≤`` if it may become better."""
    if answer.best is None:
        return ""
    figure = estimate(answer.best, "seconds" if question.kind == "target" else question.metric.dimension)
    sign = "≥" if question.metric.better == "higher" else "≤"
    return f"{sign} {figure}" if answer.least else figure


def robustness_data(runs: Sequence[RunResult], timings: Sequence[Sensitivity | None]) -> list[dict[str, Any]]:
    """For each run with targets or budgets that was timed under other conditions a sentence and a grid for each."""
    return [
        {"name": name, **_found(found)}
        for name, run, found in zip(run_names(runs), runs, timings, strict=True)
        if found is not None and run.trained and found.questions()
    ]


def _found(found: Sensitivity) -> dict[str, Any]:
    grids = [_grid(found, question) for question in found.questions()]
    return {"sentences": robustness(found), "grids": grids, "notes": _notes(found)}


def _grid(found: Sensitivity, question: Question) -> dict[str, Any]:
    bandwidths = sorted({condition.bandwidth for condition in found.conditions})
    own = found.answer(question, OWN).leaders

    def answer(condition: Condition) -> tuple[str, str, str]:
        """Its class in HTML, the names of the winners, and their figure."""
        answer = found.answer(question, condition)
        stays = condition == OWN or (bool(own) and own[0] in answer.leaders)
        kind = "own" if condition == OWN else "" if stays else "changed"
        names = f"{'' if stays else '≠ '}{' = '.join(answer.leaders) or 'none'}"
        return kind, names, figure_of(answer, question)

    return {
        "caption": f"{question.words}: devices by bandwidth",
        "bandwidths": [limit(each, "fraction") for each in bandwidths],
        "rows": {DEVICE_WORDS[each]: [answer(Condition(each, rate)) for rate in bandwidths] for each in DEVICES},
    }


def _notes(found: Sensitivity) -> list[str]:
    lines = [
        "Fast devices have every figure of their profiles at the bound with the least seconds and joules, slow devices "
        "at the bound with the most. Bandwidth: of every link, relative to the scenario. Framed: the run's own "
        "conditions. ≠: the run's winner does not win there. =: not decided. "
        "Cohorts, models and accuracies are the run's; times, bytes and joules are those of "
        "its rounds under each condition."
    ]
    if any(found.answer(question, each).least for question in found.questions() for each in found.conditions):
        lines.append(
            "≥ or ≤: the run's budget ended a method's training earlier than under this condition, so its metric "
            "may be better; with stop: rounds nothing is cut off."
        )
    return [*lines, *kept_decisions(found)]


def bands(runs: Sequence[RunResult], timings: Sequence[Sensitivity | None]) -> list[list[str]]:
    """The ranges of each method's seconds and joules over conditions; the first row is the heading.

    The conditions are the bounds of profile figures, the bandwidths and, with ``queue: fifo``, the draws of the shares.
    """
    drawn = any(found is not None and found.draws for found in timings)
    over = ["by devices", "by bandwidth", *(["by draws of shares"] if drawn else [])]
    rows = [["method", "time", *over, "energy", *over]]
    for name, found in zip(run_names(runs), timings, strict=True):
        if found is None:
            continue
        for label in found.labels:
            shown = f"{name}: {label}" if len(runs) > 1 else label
            rows.append(
                [shown, *(words for kind in ("seconds", "joules") for words in _bands(found, label, kind, drawn))]
            )
    return rows if len(rows) > 1 else []


def _bands(found: Sensitivity, label: str, kind: Spent, drawn: bool) -> list[str]:
    devices = [each for each in found.conditions if each.bandwidth == 1.0]
    links = [each for each in found.conditions if each.devices == "nominal"]
    cells = [quantity(found.total(label, OWN, kind).mean, kind)]
    for group in [devices, links, *([found.draws] if drawn else [])]:
        spent = [found.total(label, each, kind).mean for each in group]
        cells.append(f"{quantity(min(spent), kind)} – {quantity(max(spent), kind)}" if spent else "")
    return cells
