"""The winner on other devices and links: a run timed again on slower and faster ones.

This module reads the file that ``edgefl replay RUN --sensitivity`` writes. Models and metrics are the run's own;
times and costs are those under each condition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from edgefl.errors import UserError
from edgefl.record.figures import COSTS, Totals
from edgefl.record.metric import Metric
from edgefl.record.sensitivity import DEVICES, OWN, Condition, Devices, Retimed, read_retimed
from edgefl.record.summary import SeedResult
from edgefl.report.curves import Curve
from edgefl.report.paired import FEWEST_SEEDS, compared
from edgefl.report.quantities import estimate, limit
from edgefl.report.rows import named
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import Estimate
from edgefl.units import slack
from edgefl.wording import grouped


class Question(NamedTuple):
    """A question for each condition: which method is first at a target, or best within a budget."""

    kind: str  # target, or one of COSTS: the kind of the budget
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


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """A run's rounds under all conditions."""

    run: RunResult  # the run
    retimed: Retimed  # the content of its sensitivity.parquet

    @cached_property
    def _curves(self) -> dict[tuple[str, int, Condition], Curve]:
        """Of each method, seed and condition the metric over what the rounds cost there, round by round."""
        table = self.retimed.rows
        keys = zip(*(table[name].to_pylist() for name in ("label", "seed", *Condition._fields)), strict=True)
        rows = grouped(((label, seed, Condition(*of)), row) for row, (label, seed, *of) in enumerate(keys))
        amounts = {name: table[name].to_numpy().astype(np.float64) for name in COSTS}
        curves = {}
        for (label, seed, condition), own in rows.items():
            values = self.run.columns_of(label, seed)[self.run.aim][: len(own)]
            curves[label, seed, condition] = Curve(Totals({name: of[own] for name, of in amounts.items()}), values)
        return curves

    @cached_property
    def conditions(self) -> list[Condition]:
        """All conditions, from fast to slow devices and from low to high bandwidth, with the run's draw in queues."""
        found = {condition for _, _, condition in self._curves if not condition.draw}
        return sorted(found, key=lambda each: (DEVICES.index(each.devices), each.bandwidth))

    @cached_property
    def draws(self) -> list[Condition]:
        """The run's own devices and bandwidth with each draw of the shares in queues; none with fair queues."""
        drawn = sorted({condition for _, _, condition in self._curves if condition.draw})
        return [OWN, *drawn] if drawn else []

    @cached_property
    def _compared(self) -> list[str]:
        """The methods that were timed again with all their seeds, without baselines."""
        every, baselines = [*self.conditions, *self.draws], self.run.baselines
        return [
            label
            for label, results in self.run.results.items()
            if label not in baselines and all((label, e.seed, of) in self._curves for e in results for of in every)
        ]

    @cached_property
    def questions(self) -> list[Question]:
        """One for each target and each budget of the run."""
        wanted = [*(("target", value) for value in self.run.goals), *self.run.budgets] if self._compared else []
        return [Question(kind, amount, self.run.metric) for kind, amount in wanted if kind in ("target", *COSTS)]

    @cache  # noqa: B019  (as long as the page or the sentences are made)
    def answer(self, question: Question, condition: Condition) -> Answer:
        """The winner under a condition."""
        figures: dict[str, dict[int, float]] = {}
        least = False
        for label, results in [each for each in self.run.results.items() if each[0] in self._compared]:
            found = {each.seed: self._figure(label, each.seed, question, condition) for each in results}
            known = {seed: value for seed, value in found.items() if value is not None}
            if len(known) == len(results):
                figures[label] = known
                least |= any(self._goes_on(label, each, question, condition) for each in results)
        if not figures:
            return Answer((), None, least=False)
        is_target = question.kind == "target"
        highest = not is_target and self.run.metric.better == "higher"
        standing = compared(figures, highest=highest, unseen=None if is_target else self.run.scatter)
        best, leaders = standing.means[standing.best], standing.leaders
        if standing.seeds < FEWEST_SEEDS:  # nothing is decided, so only the means count
            leaders = [label for label, each in standing.means.items() if each.mean == best.mean]
        return Answer(tuple(leaders), best, least)

    def _figure(self, label: str, seed: int, question: Question, condition: Condition) -> float | None:
        """The seconds to a target, or the metric of the last model within a budget."""
        curve = self._curves[label, seed, condition]
        if question.kind == "target":
            return curve.spent_to(question.amount, "seconds", self.run.metric)
        within = (curve.spent[question.kind] <= question.amount + slack(question.amount)) & np.isfinite(curve.values)
        return float(curve.values[within][-1]) if within.any() else None

    def _goes_on(self, label: str, result: SeedResult, question: Question, condition: Condition) -> bool:
        """Whether a budget allows training after the last round that the run trained."""
        spent = self._curves[label, result.seed, condition].spent.get(question.kind, ())
        return result.stop.reason != "rounds" and any(last < question.amount for last in spent[-1:])


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
    return [_sentence(question, found) for question in found.questions]


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
    others = grouped(((*led, "No method")[0], where) for where, led in answers.items() if own[0] not in led)
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
    by_devices = grouped((each.devices, limit(each.bandwidth, "fraction")) for each in conditions)
    return " and ".join(
        f"with {DEVICE_WORDS[devices]} devices ({', '.join(parts)} bandwidth)" for devices, parts in by_devices.items()
    )


DEVICE_WORDS: dict[Devices, str] = {"low": "fast", "nominal": "nominal", "high": "slow"}
"""Names of devices with all figures at the bound with the least, the nominal or the most seconds and joules."""


def robustness_data(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """For each run with targets or budgets that was timed under other conditions a sentence and a grid for each."""
    data = []
    for name, run in named(runs).items():
        if (found := read_sensitivity(run)) is not None and run.trained and found.questions:
            grids = [_grid(found, question) for question in found.questions]
            data.append({"name": name, "sentences": robustness(found), "grids": grids, "notes": kept_decisions(found)})
    return data


def _grid(found: Sensitivity, question: Question) -> dict[str, Any]:
    bandwidths = sorted({condition.bandwidth for condition in found.conditions})
    own = found.answer(question, OWN).leaders
    dimension = "seconds" if question.kind == "target" else question.metric.dimension
    open_end = "≥ " if question.metric.better == "higher" else "≤ "

    def answer(condition: Condition) -> tuple[str, str, str]:
        """Its class in HTML, the names of the winners, and the figure of the best one."""
        leaders, best, least = found.answer(question, condition)
        stays = condition == OWN or (bool(own) and own[0] in leaders)
        kind = "own" if condition == OWN else "" if stays else "changed"
        figure = "" if best is None else f"{open_end * least}{estimate(best, dimension)}"
        return kind, f"{'' if stays else '≠ '}{' = '.join(leaders) or 'none'}", figure

    return {
        "caption": f"{question.words}: devices by bandwidth",
        "bandwidths": [limit(each, "fraction") for each in bandwidths],
        "rows": {DEVICE_WORDS[each]: [answer(Condition(each, rate)) for rate in bandwidths] for each in DEVICES},
    }
