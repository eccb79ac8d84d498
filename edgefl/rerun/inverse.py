"""``edgefl plan RUN --for CONDITION``: the worst bandwidth, devices, batteries and model that meet it.

Training stays the same: the run is simulated again with its recorded training, so its models and their metric are those
of the run. A larger model is therefore assumed to reach the same metric in the same rounds.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.experiment.recording import Recording
from edgefl.experiment.wiring import SharedWorld, client_links_of, world_of
from edgefl.fleet import fits, fleet_step_seconds
from edgefl.network.capacities.base import DIRECTIONS
from edgefl.network.client_links import ClientLinks
from edgefl.record.costs import StepKey, read_costs
from edgefl.record.events import Listener
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult
from edgefl.rerun.condition import KINDS, Condition, Kind, parse_condition
from edgefl.rerun.finished_run import FinishedRun
from edgefl.rerun.questions import (
    BATTERY_JOULES,
    QUESTIONS,
    Name,
    Question,
    battery_joules,
    question_about,
    varied,
    with_batteries,
    with_larger_model,
    with_slower_devices,
)
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch
from edgefl.wording import listed

Why = Kind | Literal["memory", "training", ""]


@dataclass(frozen=True)
class Answer:
    """The answer to one question for one method.

    ``met`` and ``missed`` are the factors closest to the boundary with which every seed meets the condition, and with
    which one does not; ``None`` if there is none in the range that is searched. ``why`` and ``different`` say what
    fails at ``missed``. ``figures`` are absolute values at ``met``: ``down`` and ``up``, the median client's bit/s;
    ``step_seconds`` on the slowest ``device``; ``joules`` of the smallest battery; ``bytes`` and ``flops`` of the model
    and of one step.
    """

    met: float | None
    missed: float | None
    why: Why
    different: str
    device: str
    figures: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in base units."""
        plain = {"met": self.met, "missed": self.missed, "why": self.why, "different": self.different}
        return {**plain, **({"device": self.device} if self.device else {}), **self.figures}


@dataclass(frozen=True)
class MethodAnswer:
    """The answers for one method by question; ``why_not`` says why others are missing.

    ``spent`` is what the run itself spent until the value was reached, the most of any seed; ``None`` if a seed did not
    reach it, or if it cannot be replayed.
    """

    label: str
    spent: Mapping[Kind, float] | None
    answers: Mapping[Name, Answer]
    why_not: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in base units."""
        return {
            "label": self.label,
            "spent": None if self.spent is None else dict(self.spent),
            "needs_training": self.why_not or None,
            "answers": {name: answer.as_dict() for name, answer in self.answers.items()},
        }


@dataclass(frozen=True)
class Answers:
    """The answers for a run."""

    condition: Condition
    seeds: tuple[int, ...]
    methods: tuple[MethodAnswer, ...]
    asked: tuple[Name, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, in base units."""
        condition = self.condition
        return {
            "metric": f"{condition.metric.name}_ema" if condition.smoothed else condition.metric.name,
            "value": condition.value,
            "limits": dict(condition.limits),
            "seeds": list(self.seeds),
            "methods": [each.as_dict() for each in self.methods],
        }


@neutral_torch()
def ask(
    path: Path,
    condition: str,
    *,
    methods: Sequence[str] | None = None,
    vary: Sequence[str] = (),
    trust: bool = False,
    answered: Callable[[str, int], None] | None = None,
) -> Answers:
    """Search, for each method of a finished run, the worst conditions under which it still meets a condition.

    The questions are those of :data:`~edgefl.rerun.questions.QUESTIONS`, or about the capacities at the paths ``vary``.
    ``answered`` is called after each method with its label and the number of methods that are left.
    """
    run = FinishedRun(path, methods, trust=trust)
    if all(entry.metric.final is None for label in run.labels for entry in run.entries[label]):
        what = f"has no {run.scenario.task.measured.word} to reach, because nothing was trained in it (--no-train)"
        raise UserError(f"{what}: simulate its scenario with training", file=str(path))
    run.inputs(run.scenario)
    wanted = parse_condition(condition, run.scenario)
    questions = [question_about(path, run.scenario) for path in vary] or QUESTIONS
    worlds = {seed: world_of(run.scenario, seed) for seed in run.seeds}
    links = {seed: client_links_of(run.scenario, world) for seed, world in worlds.items()}
    rows = read_costs(run.paths.costs)
    found = []
    for left, label in zip(reversed(range(len(run.labels))), run.labels, strict=True):
        steps = {row.key: run.costs[label].step(*row.key) for row in rows[label]}
        found.append(_of_method(_MethodReplay(run, label, worlds, links, steps, wanted, questions)))
        if answered is not None:
            answered(label, left)
    return Answers(wanted, tuple(run.seeds), tuple(found), tuple(each.name for each in questions))


class _DecidedError(Exception):
    """Raised when the value is reached or a limit is exceeded."""


class _Watching(Listener):
    """Adds up what the rounds cost until the condition is decided."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.spent: dict[Kind, float] = {"seconds": 0.0, "bytes": 0.0, "joules": 0.0}
        self.met = False
        self.exceeded: Kind | None = None

    def round_ended(self, row: RoundRow) -> None:
        self.spent["seconds"] = row.seconds
        self.spent["bytes"] += row.bytes_down + row.bytes_up
        self.spent["joules"] += row.joules
        self.exceeded = self._condition.exceeded(self.spent)
        self.met = self.exceeded is None and self._condition.reached(row)
        if self.met or self.exceeded is not None:
            raise _DecidedError


@dataclass
class _MethodReplay:
    """One method of a finished run; the worlds and links are by seed, the steps by their keys."""

    run: FinishedRun
    label: str
    worlds: Mapping[int, SharedWorld]
    links: Mapping[int, ClientLinks]
    steps: Mapping[StepKey, StepCost]
    condition: Condition
    questions: Sequence[Question]

    def __post_init__(self) -> None:
        self.recordings: dict[int, Recording] = {}
        self.why: dict[tuple[Name, float], tuple[Why, str]] = {}

    def spent(self, seed: int) -> Mapping[Kind, float] | None:
        """What the run itself spent until the value was reached; ``None`` if it was not reached."""
        watching = _Watching(replace(self.condition, limits={}))
        with suppress(_DecidedError):
            simulate_run(self.setup(seed, [watching]))
        return watching.spent if watching.met else None

    def meets(self, seed: int, name: Name, factor: float) -> bool:
        """Whether a seed meets the condition if this part of the world is scaled by this factor.

        If it does not, ``why`` has the reason, and a sentence if the training would be different.
        """
        watching = _Watching(self.condition)
        different = "the run would end earlier"
        setup = self._scaled(seed, name, factor, [watching])
        with suppress(_DecidedError):
            outcome = simulate_run(setup)
            if outcome.fault is not None:
                raise outcome.fault
            different = outcome.untrained or different
        if not watching.met:
            refused = self._refused(setup) if name == "model" else ""
            if watching.exceeded is not None:
                self.why[name, factor] = watching.exceeded, ""
            elif refused and refused != self._refused(self.setup(seed)):
                self.why[name, factor] = "memory", refused
            else:
                self.why[name, factor] = "training", different
        return watching.met

    def _refused(self, setup: Setup) -> str:
        """The devices that have too little memory for the largest step, or empty."""
        peak = max(setup.cost(*key).peak_memory_bytes for key in self.steps)
        return ", ".join(dict.fromkeys(each.name for each in setup.fleet.profiles if not fits(each, peak)))

    def setup(self, seed: int, listeners: Sequence[Listener] = (), *, bandwidth: float = 1.0) -> Setup:
        """The setup of one seed, with a factor on the capacity of every link."""
        return self.run.setup(
            self.label,
            self.recordings[seed],
            world=self.worlds[seed],
            links=self.links[seed],
            listeners=listeners,
            bandwidth=bandwidth,
        )

    def _scaled(self, seed: int, name: Name, factor: float, listeners: Sequence[Listener]) -> Setup:
        if name == "bandwidth":
            return self.setup(seed, listeners, bandwidth=factor)
        if "." in name:
            there = varied(self.run.scenario, name, factor)
            links, world = client_links_of(there, self.worlds[seed]), self.worlds[seed]
            recording = self.recordings[seed]
            return self.run.setup(self.label, recording, world=world, links=links, listeners=listeners, scenario=there)
        setup = self.setup(seed, listeners)
        if name == "devices":
            return with_slower_devices(setup, factor)
        if name == "battery":
            return with_batteries(setup, factor)
        return with_larger_model(setup, factor, self.steps, self.run.costs[self.label].step)

    def capacities(self, seed: int, path: str) -> dict[str, float]:
        """The median client's capacities, or the server's, at the path of a scenario."""
        *_, name, last = path.split(".")
        ways = [last] if last in DIRECTIONS else list(DIRECTIONS)
        if "topology" in path:
            return {way: getattr(self.run.scenario.network.topology.server, way) for way in ways}
        mine = np.array(self.worlds[seed].fleet.link_names()) == (name if last in DIRECTIONS else last)
        return {way: float(np.median(self.links[seed].usual(way)[mine])) for way in ways}


def _of_method(replay: _MethodReplay) -> MethodAnswer:
    label, entries = replay.label, replay.run.entries[replay.label]
    try:
        replay.recordings = {entry.seed: replay.run.recording(label, entry.seed) for entry in entries}
    except UserError as error:
        return MethodAnswer(label, None, {}, error.message)
    spent = {seed: replay.spent(seed) for seed in replay.recordings}
    reached = {seed: each for seed, each in spent.items() if each is not None}
    never = [seed for seed in spent if seed not in reached]
    if never:
        return MethodAnswer(label, None, {}, _not_reached(entries, never, replay.condition))
    timed = {(what, name) for each in replay.recordings.values() for _, what, reads in each.timed for name in reads}
    worst_first = sorted(reached, key=lambda seed: -reached[seed]["seconds"])
    answers = {
        each.name: _answer(replay, each, worst_first, _own_figures(replay, worst_first[0], each.name))
        for each in replay.questions
        if not (timed and each.retimes)
    }
    most = {kind: max(each[kind] for each in reached.values()) for kind in KINDS}
    return MethodAnswer(label, most, answers, _read_times(timed))


def _answer(
    replay: _MethodReplay, question: Question, seeds: Sequence[int], own: tuple[str, dict[str, float]]
) -> Answer:
    """The answer for all seeds: the boundary of the first one, made easier until every seed meets the condition."""
    name = question.name
    met: float | None = question.hardest
    missed: float | None = None
    while met is not None:
        seed = next((each for each in seeds if not replay.meets(each, name, met)), None)
        if seed is None:
            break
        met, missed = boundary(partial(replay.meets, seed, name), easiest=question.easiest, missed=met)
    nothing: tuple[Why, str] = ("", "")
    why, different = nothing if missed is None else replay.why[name, missed]
    device, figures = own
    there = {} if met is None else {key: each * met for key, each in figures.items()}
    return Answer(met, missed, why, different, device, there)


class Interval(NamedTuple):
    """The two sides of a boundary; ``met`` is ``None`` if not even the easiest factor meets the condition."""

    met: float | None
    missed: float


def boundary(meets: Callable[[float], bool], *, easiest: float, missed: float, precision: float = 0.01) -> Interval:
    """Search the boundary between the factors that meet a condition and those that do not, by bisection in logarithms.

    It is met at ``easiest`` if anywhere, and not at ``missed``; the two factors of the result differ by ``precision``.

    >>> interval = boundary(lambda factor: factor >= 0.3, easiest=1000, missed=0.001)
    >>> 0.297 < interval.missed < 0.3 <= interval.met < 0.303
    True
    >>> boundary(lambda factor: factor >= 2000, easiest=1000, missed=0.001)
    Interval(met=None, missed=1000)
    """
    if not meets(easiest):
        return Interval(None, easiest)
    met = easiest
    while max(met, missed) > (1 + precision) * min(met, missed):
        middle = math.sqrt(met * missed)
        if meets(middle):
            met = middle
        else:
            missed = middle
    return Interval(met, missed)


def _own_figures(replay: _MethodReplay, seed: int, name: Name) -> tuple[str, dict[str, float]]:
    """The slowest device, if the question is about devices, and the figures of the run itself, at factor 1."""
    if "." in name:
        return "", replay.capacities(seed, name)
    setup = replay.setup(seed)
    profiles = setup.fleet.profiles
    largest = max(replay.steps.values(), key=lambda step: step.training_flops)
    match name:
        case "bandwidth":
            links = replay.links[seed]
            return "", {direction: float(np.median(links.usual(direction))) for direction in DIRECTIONS}
        case "battery":
            return "", {"joules": battery_joules(profiles) or BATTERY_JOULES}
        case "model":
            return "", {"bytes": float(setup.sizes.model_bytes), "flops": largest.training_flops}
    if setup.seconds is not None:  # the scenario gives the seconds of local training
        return "", {}
    seconds = fleet_step_seconds(profiles, largest.operators)
    slowest = int(np.argmax(seconds))
    return profiles[slowest].name, {"step_seconds": float(seconds[slowest])}


def _not_reached(entries: Sequence[SeedResult], never: Sequence[int], condition: Condition) -> str:
    """That seeds do not reach the value, and the best value of each, in words."""
    seeds = listed([str(seed) for seed in never])
    which = "" if len(entries) == 1 else f" with {'seed' if len(never) == 1 else 'seeds'} {seeds}"
    best = [entry.metric.best for entry in entries if entry.seed in never and entry.metric.best is not None]
    if condition.smoothed or len(best) < len(never):  # the summary has no best value of the moving average
        return f"the run does not reach the value{which}"
    values = [f"{100 * each:.4g} %" if condition.metric.share else f"{each:.4g}" for each in best]
    return f"the run does not reach the value{which}; its best {condition.metric.word} there is {listed(values)}"


_TIMES = {"compute_seconds": "the seconds of computing", "transfer_seconds": "the seconds of transfers"}


def _read_times(timed: Iterable[tuple[str, str]]) -> str:
    """Which decisions read which times, in words; empty without one."""
    decisions = sorted({what for what, _ in timed})
    inputs = sorted({_TIMES.get(name, name) for _, name in timed})
    return f"its decisions on {listed(decisions)} depend on {listed(inputs)}" if decisions else ""
