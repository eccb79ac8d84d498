"""``edgefl plan RUN --for CONDITION``: the worst bandwidth, devices, batteries and model that meet it.

Training stays the same: the run is simulated again with its recorded training, so its models and their metric are those
of the run. A larger model is therefore assumed to reach the same metric in the same rounds.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.experiment.recording import Recording
from edgefl.fleet import fits, fleet_step_seconds
from edgefl.network.capacities.base import DIRECTIONS
from edgefl.record.costs import StepKey, read_costs
from edgefl.record.figures import COSTS
from edgefl.record.metric import Metric
from edgefl.report.quantities import quantity
from edgefl.rerun import changes
from edgefl.rerun.finished_run import FinishedRun, timed_decision
from edgefl.scenario import Scenario, with_overrides
from edgefl.scenario.sections import values_of
from edgefl.simulation.accounts import Limits
from edgefl.simulation.run import Outcome, simulate_run
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch
from edgefl.units import UNITS
from edgefl.wording import listed

_LIMITS = (*COSTS, "grams", "euros")

Name = str
"""``bandwidth``, ``devices``, ``battery`` or ``model``, or the path of capacities in a scenario."""

Failure = tuple[str, str]
"""Why a condition is not met, and a sentence if something else would be trained."""


class Question(NamedTuple):
    """What is multiplied by a factor, and the factors between which the boundary is searched."""

    words: str
    change: Callable[..., Setup]
    easiest: float = 1e-3
    hardest: float = 1e3


QUESTIONS: dict[Name, Question] = {
    "bandwidth": Question("least bandwidth", changes.with_bandwidth, 1e3, 1e-3),
    "devices": Question("slowest devices", changes.with_slower_devices),
    "battery": Question("smallest batteries", changes.with_batteries, 1e6, 1e-6),
    "model": Question("largest model", changes.with_larger_model),
}
"""The capacity of every link; the seconds of local training; the capacity of batteries; the model's bytes and FLOPs."""


class Condition(NamedTuple):
    """A value of the metric, or of its moving average, to be reached within limits in base units."""

    metric: Metric
    value: float
    smoothed: bool
    limits: Mapping[str, float]


def parse_condition(text: str, scenario: Scenario) -> Condition:
    """Read ``METRIC=VALUE within QUANTITY [and within QUANTITY…]``, or ``targets.N within …``.

    The value and the quantities are checked as a target and as budgets of the scenario.

    >>> from edgefl.scenario import load_scenario
    >>> condition = parse_condition("accuracy=0.9 within 1 min and within 2 GB", load_scenario("5g_100clients"))
    >>> condition.value, condition.limits
    (0.9, {'seconds': 60.0, 'bytes': 2000000000.0})
    """
    try:
        smoothed, asked = _changes(text, scenario)
        chosen = with_overrides(scenario, asked, run_code=False)
    except UserError as error:
        raise UserError(error.message, file=f"--for '{text}'") from None
    limits = {kind: limit for kind in _LIMITS if (limit := getattr(chosen.budgets, kind)) is not None}
    (value,) = values_of(chosen.targets)
    return Condition(scenario.task.measured, value, smoothed, limits)


def _changes(text: str, scenario: Scenario) -> tuple[bool, dict[str, Any]]:
    """Whether a condition is about the moving average; its target and budgets, as changes of the scenario."""
    goal, *quantities = re.split(r"\s+(?:and\s+)?within\s+", text.strip())
    metric, known = scenario.task.measured, values_of(scenario.targets)
    name, _, value = (part.strip() for part in goal.partition("="))
    if (target := re.fullmatch(r"targets\.(\d+)", goal)) is not None:
        if (number := int(target[1])) >= len(known):
            raise UserError(f"the run's scenario has {len(known)} targets, counted from 0; found {goal}")
        name, value = f"{metric.name}{'_ema' * scenario.target_metric.endswith('_ema')}", str(known[number])
    if not quantities or not value:
        raise UserError("expected METRIC=VALUE within QUANTITY, such as 'accuracy=0.9 within 1h and within 500 MB'")
    budgets = {_kind_of(each): each for each in quantities}
    if len(budgets) < len(quantities):
        raise UserError("expected one limit of each kind")
    bound = "at_least" if metric.better == "higher" else "at_most"
    return name.endswith("_ema"), {"targets": [{"metric": name.removesuffix("_ema"), bound: value}], "budgets": budgets}


def _kind_of(quantity: str) -> str:
    unit = re.split(r"[\d\s.]", quantity.strip())[-1]
    kind = next((each for each in _LIMITS if unit in UNITS[each]), None)
    if kind is None:
        raise UserError(
            f"expected seconds, bytes, joules, grams or euros with a unit, such as '1h' or '500 MB', found '{quantity}'"
        )
    return kind


@neutral_torch()
def ask(
    path: Path,
    condition: str,
    *,
    methods: Sequence[str] | None = None,
    vary: Sequence[str] = (),
    trust: bool = False,
    answered: Callable[[str, int], None] | None = None,
) -> dict[str, Any]:
    """Search, for each method of a finished run, the worst conditions under which it still meets a condition.

    The questions are :data:`QUESTIONS`, or about the capacities at the paths ``vary``. ``answered`` is called after
    each method with its label and the number of methods that are left.

    Returns plain data in base units, with the condition and ``methods``. Of each, ``spent`` is what the run itself
    spent until the value was reached, the most of any seed, and ``needs_training`` says why ``answers`` are missing.
    In an answer ``met`` and ``missed`` are the factors closest to the boundary with which every seed meets the
    condition, and with which one does not, or ``None`` if there is none in the range that is searched; ``why`` and
    ``different`` are of ``missed``. The other figures are absolute values at ``met``: ``down`` and ``up``, the median
    client's bit/s; ``step_seconds`` on the slowest ``device``; ``joules`` of the smallest battery; ``bytes`` and
    ``flops`` of the model and of one step.
    """
    run = FinishedRun(path, methods, trust=trust)
    if all(entry.metric.final is None for label in run.labels for entry in run.entries[label]):
        what = f"has no {run.scenario.task.measured.word} to reach, because nothing was trained in it (--no-train)"
        raise UserError(f"{what}: simulate its scenario with training", file=str(path))
    run.inputs(run.scenario)
    wanted = parse_condition(condition, run.scenario)
    for each in vary:
        changes.varied(run.scenario, each, 1.0)  # refuses a path without capacities
    rows = read_costs(run.paths.costs)
    found = []
    for left, label in zip(reversed(range(len(run.labels))), run.labels, strict=True):
        steps = {row.key: run.costs[label].step(*row.key) for row in rows[label]}
        found.append(_of_method(run, label, steps, wanted, vary or QUESTIONS))
        if answered is not None:
            answered(label, left)
    metric = f"{wanted.metric.name}{'_ema' * wanted.smoothed}"
    return {"metric": metric, "value": wanted.value, "limits": wanted.limits, "seeds": run.seeds, "methods": found}


@dataclass(frozen=True, eq=False)
class _Replayed:
    """One method of a finished run, to be simulated again; the recordings are by seed, the steps by their keys."""

    run: FinishedRun
    label: str
    steps: Mapping[StepKey, StepCost]
    recordings: Mapping[int, Recording]
    condition: Condition

    def setup(self, seed: int, name: Name = "", factor: float = 1.0) -> Setup:
        """The setup of one seed, with one part of its world multiplied by a factor."""
        there = changes.varied(self.run.scenario, name, factor) if "." in name else None
        setup = self.run.setup(self.label, seed, self.recordings[seed], there)
        if name not in QUESTIONS:
            return setup
        return QUESTIONS[name].change(setup, factor, **({"steps": self.steps} if name == "model" else {}))

    def until_reached(self, setup: Setup, limits: Mapping[str, float]) -> Outcome:
        """Simulate until the value is reached, or a limit exceeded."""
        wanted = self.condition
        target = Limits(limits, [wanted.value], wanted.metric, smoothed=wanted.smoothed)
        outcome = simulate_run(replace(setup, limits=target, stop="target"))
        if outcome.fault is not None:
            raise outcome.fault
        return outcome

    @cache  # noqa: B019  (as long as the method's questions are answered)
    def failure(self, seed: int, name: Name, factor: float) -> Failure | None:
        """Why a seed does not meet the condition if this part of the world is multiplied by a factor, or ``None``."""
        setup = self.setup(seed, name, factor)
        outcome = self.until_reached(setup, self.condition.limits)
        if outcome.limits.all_reached:
            return None
        exceeded = next((kind for kind in self.condition.limits if kind == outcome.reason), None)
        if exceeded is not None:
            return exceeded, ""
        refused = self._refused(setup)
        if refused and refused != self._refused(self.setup(seed)):
            return "memory", refused
        return "training", outcome.untrained or "the run would end earlier"

    def _refused(self, setup: Setup) -> str:
        """The devices that have too little memory for the largest step, or empty."""
        peak = max(setup.cost(*key).peak_memory_bytes for key in self.steps)
        return ", ".join(dict.fromkeys(each.name for each in setup.fleet.profiles if not fits(each, peak)))

    def answer(self, name: Name, seeds: Sequence[int]) -> dict[str, Any]:
        """The answer for all seeds: the boundary of the first one, made easier until every seed meets the condition."""
        question = QUESTIONS.get(name, QUESTIONS["bandwidth"])
        met: float | None = question.hardest
        missed: float | None = None
        failure: Failure | None = None
        while met is not None:
            seed = next((each for each in seeds if self.failure(each, name, met)), None)
            if seed is None:
                break
            fails = partial(self.failure, seed, name)
            met, missed = boundary(fails, easiest=question.easiest, missed=met)
            failure = fails(missed)
        figures = {} if met is None else self.figures(self.setup(seeds[0], name, met), name, met)
        why, different = failure or ("", "")
        return {"met": met, "missed": missed, "why": why, "different": different, **figures}

    def figures(self, setup: Setup, name: Name, factor: float) -> dict[str, Any]:
        """What a factor means in absolute values, of a setup with it."""
        largest = max((setup.cost(*key) for key in self.steps), key=lambda step: step.training_flops)
        profiles, links = setup.fleet.profiles, np.array(setup.fleet.link_names())
        match name.split("."):
            case ["battery"]:
                return {"joules": changes.battery_joules(setup)}
            case ["model"]:
                return {"bytes": float(setup.sizes.model_bytes), "flops": largest.training_flops}
            case ["devices"]:
                if setup.seconds is not None:  # the scenario gives the seconds of local training
                    return {}
                seconds = fleet_step_seconds(profiles, largest.operators)
                slowest = int(np.argmax(seconds))
                return {"device": profiles[slowest].name, "step_seconds": float(seconds[slowest])}
            case ["network", "topology", _, *ways]:
                server = changes.varied(self.run.scenario, name, factor).network.topology.server
                return {way: getattr(server, way) for way in ways or DIRECTIONS}
            case [_, _, link, *ways]:
                mine = links == link
            case _:
                mine, ways = np.ones(len(links), bool), []
        usual = setup.capacity_changes.usual
        return {way: float(np.median(usual(way)[mine])) for way in DIRECTIONS if way in (ways or DIRECTIONS)}


def _of_method(
    run: FinishedRun, label: str, steps: Mapping[StepKey, StepCost], condition: Condition, asked: Iterable[Name]
) -> dict[str, Any]:
    found: dict[str, Any] = {"label": label, "spent": None, "needs_training": None, "answers": {}}
    try:
        replayed = _Replayed(run, label, steps, run.recordings(label), condition)
    except UserError as error:
        return {**found, "needs_training": error.message}
    own = {seed: replayed.until_reached(replayed.setup(seed), {}) for seed in replayed.recordings}
    reached = {seed: standing for seed, each in own.items() if (standing := each.limits.targets[0].reached) is not None}
    if never := [seed for seed in own if seed not in reached]:
        metric = condition.metric
        best = listed([f"{quantity(own[seed].best, metric.dimension)} with seed {seed}" for seed in never])
        return {**found, "needs_training": f"the run does not reach the value; its best {metric.word} is {best}"}
    worst_first = sorted(reached, key=lambda seed: -reached[seed]["seconds"])
    timed = timed_decision(replayed.recordings.values())
    answers = {name: replayed.answer(name, worst_first) for name in asked if timed is None or name == "battery"}
    kinds = {*COSTS, *condition.limits}
    most = {kind: max(each[kind] for each in reached.values()) for kind in _LIMITS if kind in kinds}
    return {**found, "spent": most, "needs_training": timed, "answers": answers}


def boundary(fails: Callable[[float], object], *, easiest: float, missed: float) -> tuple[float | None, float]:
    """Search the boundary between the factors that meet a condition and those that do not, by bisection in logarithms.

    It is met at ``easiest`` if anywhere, and not at ``missed``; the two factors of the result differ by 1 %. The first
    is ``None`` if not even ``easiest`` meets the condition.

    >>> met, missed = boundary(lambda factor: factor < 0.3, easiest=1000, missed=0.001)
    >>> 0.297 < missed < 0.3 <= met < 0.303
    True
    >>> boundary(lambda factor: factor < 2000, easiest=1000, missed=0.001)
    (None, 1000)
    """
    if fails(easiest):
        return None, easiest
    met = easiest
    while max(met, missed) > 1.01 * min(met, missed):
        middle = math.sqrt(met * missed)
        if fails(middle):
            missed = middle
        else:
            met = middle
    return met, missed
