"""Ask a finished run how much less bandwidth, speed, battery, or how much more model still meets a condition.

Training stays the same: the run is simulated again with its recorded training, so its models and their metric are those
of the run. A larger model is therefore assumed to reach the same metric in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.experiment.step_costs import StepKey
from edgefl.experiment.wiring import client_links_of
from edgefl.fleet import fleet_step_seconds
from edgefl.network.client_links import DIRECTIONS, ClientLinks
from edgefl.record.costs import read_costs
from edgefl.record.summary import SeedResult
from edgefl.rerun.finished_run import FinishedRun
from edgefl.rerun.inverse.answers import Answer, Answers, MethodAnswer
from edgefl.rerun.inverse.bisection import boundary
from edgefl.rerun.inverse.condition import KINDS, Condition, Kind, parse_condition
from edgefl.rerun.inverse.questions import BATTERY_JOULES, QUESTIONS, Name, Question, battery_joules
from edgefl.rerun.inverse.replaying import MethodReplay, Seed
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch
from edgefl.wording import listed


@neutral_torch()
def ask(
    path: Path,
    condition: str,
    *,
    methods: Sequence[str] | None = None,
    trust: bool = False,
    answered: Callable[[str, int], None] | None = None,
) -> Answers:
    """Search, for each method of a finished run, the worst conditions under which it still meets a condition.

    Args:
        path: the run directory.
        condition: as :func:`parse_condition` reads it.
        methods: labels; all of the run's if not given.
        trust: execute the scenario's Python files even if they are not those that the run began with.
        answered: is called after each method with its label and the number of methods that are left.

    Raises:
        UserError: the run is not finished, nothing was trained in it, its protocol lets arrival times decide what is
            aggregated, or the condition is invalid.
    """
    run = FinishedRun(path, methods, trust=trust)
    if all(entry.metric.final is None for label in run.labels for entry in run.entries[label]):
        what = f"has no {run.scenario.task.measured.word} to reach, because nothing was trained in it (--no-train)"
        raise UserError(f"{what}: simulate its scenario with training", file=str(path))
    run.inputs(run.scenario)
    wanted = parse_condition(condition, run.scenario)
    numbers = tuple(dict.fromkeys(entry.seed for label in run.labels for entry in run.entries[label]))
    worlds = {seed: run.world(run.scenario, seed) for seed in numbers}
    seeds = {seed: Seed(world, client_links_of(run.scenario, world)) for seed, world in worlds.items()}
    rows = read_costs(run.paths.costs)
    found = []
    for left, label in zip(reversed(range(len(run.labels))), run.labels, strict=True):
        keys = [(row.alpha, row.batch, row.level) for row in rows[label]]
        steps = {key: run.costs[label].step(*key) for key in keys}
        found.append(_of_method(run, label, seeds, steps, wanted))
        if answered is not None:
            answered(label, left)
    return Answers(wanted, numbers, tuple(found))


def _of_method(
    run: FinishedRun,
    label: str,
    seeds: Mapping[int, Seed],
    steps: Mapping[StepKey, StepCost],
    condition: Condition,
) -> MethodAnswer:
    try:
        recordings = {entry.seed: run.recording(label, entry.seed) for entry in run.entries[label]}
    except UserError as error:
        return MethodAnswer(label, None, {}, error.message)
    replay = MethodReplay(run, label, recordings=recordings, seeds=seeds, steps=steps, condition=condition)
    spent = {seed: replay.spent(seed) for seed in recordings}
    never = [seed for seed, each in spent.items() if each is None]
    if never:
        return MethodAnswer(label, None, {}, _not_reached(run.entries[label], never, condition))
    timed = {(what, name) for recording in recordings.values() for _, what, reads in recording.timed for name in reads}
    worst_first = sorted(spent, key=lambda seed: -(spent[seed] or {})["seconds"])
    setup, links = replay.setup(worst_first[0]), seeds[worst_first[0]].links
    answers = {
        each.name: _answer(replay, each, worst_first, _own_figures(setup, links, steps, each.name))
        for each in QUESTIONS
        if not (timed and each.retimes)
    }
    return MethodAnswer(label, _most(spent.values()), answers, _read_times(timed))


def _answer(
    replay: MethodReplay, question: Question, seeds: Sequence[int], own: tuple[str, dict[str, float]]
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
    why, different = ("", "") if missed is None else replay.why[name, missed]
    device, figures = own
    there = {} if met is None else {key: each * met for key, each in figures.items()}
    return Answer(met, missed, why, different, device, there)


def _own_figures(
    setup: Setup, links: ClientLinks, steps: Mapping[StepKey, StepCost], name: Name
) -> tuple[str, dict[str, float]]:
    """The slowest device, if the question is about devices, and the figures of the run itself, at factor 1."""
    profiles = setup.fleet.profiles
    largest = max(steps.values(), key=lambda step: step.training_flops)
    match name:
        case "bandwidth":
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


def _most(spent: Iterable[Mapping[Kind, float] | None]) -> dict[Kind, float]:
    """The most of each kind."""
    known = [each for each in spent if each is not None]
    return {kind: max(each[kind] for each in known) for kind in KINDS}
