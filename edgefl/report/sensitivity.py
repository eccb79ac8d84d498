"""The winner on other devices and links: a run timed again on slower and faster ones.

This module reads the file that ``edgefl replay RUN --sensitivity`` writes. Models and metrics are the run's own;
times and costs are those under each condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.record.metric import Metric
from edgefl.record.sensitivity import DEVICES, OWN, Condition, Devices, Retimed, read_retimed
from edgefl.report.curves import as_good, column, metric_of
from edgefl.report.paired import FEWEST_SEEDS, compared
from edgefl.report.quantities import estimate, limit
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate, mean_interval

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
        columns = {
            name: self.retimed.rows.column(name).to_pylist()
            for name in ("label", "seed", "devices", "bandwidth", "draw")
        }
        keys = list(zip(*columns.values(), strict=True))
        amounts = {
            name: self.retimed.rows.column(name).to_numpy().astype(np.float64)
            for name in ("round", "seconds", "bytes", "joules")
        }
        rows: dict[tuple[str, int, Condition], list[int]] = {}
        for row, (label, seed, *condition) in enumerate(keys):
            rows.setdefault((label, seed, Condition(*condition)), []).append(row)
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
        return [
            label
            for label, results in self.run.results.items()
            if all(
                (label, result.seed, condition) in self._spent
                for result in results
                for condition in [*self.conditions, *self.draws]
            )
        ]

    def questions(self) -> list[Question]:
        """One for each target and each budget of the run."""
        results = [result for label in self.labels for result in self.run.results[label]]
        targets = sorted({target.value for result in results for target in result.targets})
        budgets = dict.fromkeys((budget.kind, budget.limit) for result in results for budget in result.budgets)
        return [Question("target", value, self.run.metric) for value in targets] + [
            Question(kind, amount, self.run.metric)
            for kind, amount in budgets
            if kind in ("seconds", "bytes", "joules")
        ]

    def total(self, label: str, condition: Condition, kind: Spent) -> Estimate:
        """The total cost of the method's trained rounds, over its seeds."""
        totals = [self._spent[label, result.seed, condition][kind] for result in self.run.results[label]]
        return mean_interval([float(values[-1]) if len(values) else 0.0 for values in totals])

    def answer(self, question: Question, condition: Condition) -> Answer:
        """The winner under a condition."""
        found: dict[str, dict[int, tuple[float | None, bool]]] = {
            label: {
                result.seed: (self._seconds_to(label, result.seed, question.amount, condition), False)
                if question.kind == "target"
                else self._within(label, result.seed, question, condition)
                for result in self.run.results[label]
            }
            for label in self.labels
        }
        figures = {
            label: {seed: value for seed, (value, _) in seeds.items() if value is not None}
            for label, seeds in found.items()
        }
        whole = {label: seeds for label, seeds in figures.items() if len(seeds) == len(found[label])}
        if not whole:
            return Answer((), None, least=False)
        highest = question.kind != "target" and self.run.metric.better == "higher"
        unseen = None if question.kind == "target" else self.run.scatter
        standing = compared(whole, highest=highest, unseen=unseen)
        least = any(over for label in whole for _, over in found[label].values())
        best = standing.means[standing.best]
        leaders = standing.leaders
        if standing.seeds < FEWEST_SEEDS:  # nothing is decided, so only the means count
            leaders = [label for label, each in standing.means.items() if each.mean == best.mean]
        return Answer(tuple(leaders), best, least)

    def _seconds_to(self, label: str, seed: int, goal: float, condition: Condition) -> float | None:
        reached = np.flatnonzero(as_good(self._values(label, seed), goal, self.run.metric))
        spent = self._spent[label, seed, condition]["seconds"]
        return float(spent[reached[0]]) if len(reached) else None

    def _within(self, label: str, seed: int, question: Question, condition: Condition) -> tuple[float | None, bool]:
        """The metric of the last model within the budget, and whether the budget allowed further training."""
        spent = self._spent[label, seed, condition][question.kind]
        values = self._values(label, seed)
        within = np.flatnonzero((spent <= question.amount * (1 + 1e-9)) & np.isfinite(values))
        result = next(each for each in self.run.results[label] if each.seed == seed)
        over = bool(len(spent)) and spent[-1] < question.amount and result.stop.reason != "rounds"
        return (float(values[within[-1]]) if len(within) else None), over

    def _values(self, label: str, seed: int) -> NDArray[np.float64]:
        rounds = len(self._spent[label, seed, self.conditions[0]]["round"])
        return column(self.run.rounds_of(label, seed), metric_of(self.run))[:rounds]


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
    return [_sentence(question, found) + _in_queues(question, found) for question in found.questions()]


def kept_decisions(found: Sensitivity) -> list[str]:
    """Sentences about methods whose decisions depend on times, and about those that could not be timed again."""
    kept = [
        f"{label} decides on {' and '.join(decisions)} by time. The run's decisions are kept; under other conditions "
        "it might decide differently, and only a full run can show that."
        for label, decisions in found.retimed.held.items()
    ]
    return kept + [f"{label} is left out: {reason}" for label, reason in found.retimed.refused.items()]


def _sentence(question: Question, found: Sensitivity) -> str:
    answers = {condition: found.answer(question, condition) for condition in found.conditions}
    own = answers[OWN].leaders
    if not own:
        return f"{question.words}: no method under the run's own conditions."
    stays = sum(own[0] in answer.leaders for answer in answers.values())
    rivals = f" (not decided: {', '.join(own[1:])})" if len(own) > 1 else ""
    others = "" if stays == len(answers) else f" {_others(answers, own[0])}"
    return f"{question.words}: {own[0]}{rivals}. It leads in {stays} of {len(answers)} conditions.{others}"


def _in_queues(question: Question, found: Sensitivity) -> str:
    own = found.answer(question, OWN).leaders
    if not found.draws or not own:
        return ""
    stays = sum(own[0] in found.answer(question, draw).leaders for draw in found.draws)
    return f" With {len(found.draws)} draws of the shares in queues it leads in {stays}."


def _others(answers: Mapping[Condition, Answer], winner: str) -> str:
    others: dict[str, list[Condition]] = {}
    for condition, answer in answers.items():
        if winner not in answer.leaders:
            others.setdefault(answer.leaders[0] if answer.leaders else "No method", []).append(condition)
    return "; ".join(f"{name} leads {_where(conditions)}" for name, conditions in others.items()) + "."


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
