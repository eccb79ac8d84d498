"""What a small scenario comes to: its world alone, the same with training, or what its plan says."""

from __future__ import annotations

import json
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from edgefl.cost.law import CostModel
from edgefl.data.federated import FederatedData, Split, load_federated
from edgefl.data.spec import DataSpec
from edgefl.errors import UserError
from edgefl.experiment.final_models import FinalModels, kept_models_of
from edgefl.experiment.round_optimum import optimum_of
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import recipe_of, setup_of, shared_world, world_for
from edgefl.models.registry import ModelSpec, build_model
from edgefl.planning.planning import plan
from edgefl.record.events import Listener
from edgefl.record.paths import SeedPaths
from edgefl.scenario.components import Named
from edgefl.scenario.loading import check
from edgefl.scenario.overrides import overridden, parse_overrides
from edgefl.scenario.scenario import Scenario
from edgefl.simulation.run import Outcome, simulate_run
from edgefl.tasks.base import Task
from edgefl.training.core import TrainingCore
from edgefl.training.job import Learner, NeutralLearner

from ...small_runs import Rows

BASE: dict[str, Any] = {
    "name": "small",
    "data": {
        "name": "synthetic", "shape": [1, 8, 8], "classes": 4, "train": 320, "test_images": 80, "clients": 8,
        "partition": {"kind": "iid"},
    },
    "model": {"name": "cnn", "width": 2},
    "training": {"rounds": 3, "cohort": 4, "local": {"epochs": 1, "batch": 16}},
    "fleet": [{"profile": name, "count": 4, "link": "l"} for name in ("raspberry-pi-4", "jetson-nano")],
    "network": {
        "topology": {"kind": "star", "server": {"down": "2 Mbit/s", "up": "2 Mbit/s"}, "latency": "20 ms"},
        "links": {"l": {"down": "1 Mbit/s", "up": "1 Mbit/s"}, "slow": {"down": "0.1 Mbit/s", "up": "0.1 Mbit/s"}},
    },
    "methods": ["fedavg"],
    "stop": "rounds",
}  # fmt: skip
"""Eight clients of two kinds that share a server's link; each has 40 small images."""

LEARNING: dict[str, Any] = {
    "data.train": 96,
    "data.test_images": 64,
    "data.signal": 0.8,
    "data.partition": {"kind": "shards", "s": 2},
    "training.local": {"epochs": 1, "batch": 4, "lr": 0.1},
}
"""What a run that trains has beside: little and uneven data, two classes a client, three local steps."""


class Seen(NamedTuple):
    """What a run came to.

    ``reason`` to ``events`` are the log and its sums; ``clients`` are those who trained in each round; ``held`` is how
    many classes a client holds on average, ``largest`` are the images of the client with the most; ``moved`` is the
    distance from the first model to the last, and ``left`` what followed the run: entries of its summary, and its
    files.
    """

    reason: str
    rounds: int
    seconds: float
    bytes: float
    bytes_down: float
    bytes_up: float
    flops: float
    joules: float
    participants: int
    refused: int
    compared: int
    evaluations: int
    accuracy: float
    loss: float
    clients: tuple[tuple[int, ...], ...]
    events: tuple[str, ...]
    largest: int
    held: float = 0.0
    moved: float = 0.0
    left: tuple[str, ...] = ()
    personalised: float = 0.0


def scenario_of(changes: dict[str, Any]) -> Scenario:
    return check(overridden(BASE, parse_overrides(changes)))


def world(changes: dict[str, Any]) -> Seen:
    """The world alone."""
    return _seen(_text(changes), False)


def trained(changes: dict[str, Any]) -> Seen:
    """The world and its training."""
    return _seen(_text({**LEARNING, **changes}), True)


def planned(changes: dict[str, Any]) -> float:
    """How wide a plan's range of a round's seconds of computing is."""
    range = plan(check(json.loads(_text(changes)))).methods[0].devices[0].compute_seconds
    return range.high - range.low


def refused(changes: dict[str, Any]) -> str:
    """Why the scenario is refused; nothing where it is not."""
    try:
        scenario_of(changes)
    except UserError as error:
        return error.message
    return ""


def _text(changes: dict[str, Any]) -> str:
    return json.dumps(overridden(BASE, parse_overrides(changes)))


@cache
def _seen(text: str, trains: bool) -> Seen:
    scenario = check(json.loads(text))
    method, seed = scenario.methods[0], scenario.seeds[0]
    costs = _step_costs(scenario)
    data = _loaded(scenario.data, seed, scenario.evaluation.split) if trains else None
    shared = shared_world(scenario, seed, data)
    log = Rows()

    def run(learner: Learner, *listeners: Listener) -> Outcome:
        followers = [log, *listeners]
        own, world = world_for(scenario, shared, costs.method)
        setup = setup_of(own, method, world, costs, learner=learner, trains=trains, listeners=followers)
        return simulate_run(setup, optimum=optimum_of(own, setup))

    largest = int(shared.samples.max())
    if data is None:
        return _summed(run(NeutralLearner()), log, largest=largest)
    kept = kept_models_of(scenario)
    with (
        TrainingCore.of(data, scenario.model.spec, seed, engine=scenario.training.engine) as core,
        tempfile.TemporaryDirectory() as folder,
    ):
        learner = core.learner(costs.method, kept)
        first = learner.model(0).clone()
        conclusion = FinalModels(scenario, SeedPaths(Path(folder)), core, data, seed, costs.method, learner, kept)
        outcome = run(learner, conclusion)
        moved = float(torch.linalg.vector_norm(learner.model(outcome.rounds) - first))
        files = sorted((file.name, hash(file.read_bytes())) for file in Path(folder).iterdir())
    left = (*map(repr, conclusion.results.items()), *map(str, files))
    personal = conclusion.results.get("personalisation")
    return _summed(
        outcome, log, largest=largest, moved=moved, left=left, personalised=personal.mean if personal else 0.0,
        held=float((data.label_counts > 0).sum(axis=1).mean()),
    )  # fmt: skip


def _summed(outcome: Outcome, log: Rows, **extra: Any) -> Seen:
    spent, rows = outcome.spent, outcome.rows
    working: dict[int, set[int]] = {row.round: set() for row in rows}
    for event in log.rows:
        if event.kind == "compute_start" and event.round in working:
            working[event.round].add(event.client)
    return Seen(
        reason=outcome.reason,
        rounds=outcome.rounds,
        seconds=outcome.seconds,
        bytes=spent["bytes_down"] + spent["bytes_up"],
        bytes_down=spent["bytes_down"],
        bytes_up=spent["bytes_up"],
        flops=spent["flops"],
        joules=spent["joules"],
        participants=sum(row.participants for row in rows),
        refused=sum(row.refused for row in rows),
        compared=sum(math.isfinite(row.ratio_to_optimum) for row in rows),
        evaluations=sum(each.kind == "evaluation" for each in log.rows),
        accuracy=outcome.final.metric,
        loss=outcome.final.loss,
        clients=tuple(tuple(sorted(cohort)) for cohort in working.values()),
        events=tuple(map(repr, [*log.rows, *rows])),
        **extra,
    )


def _step_costs(scenario: Scenario) -> StepCosts:
    described = scenario.data.describe()
    cost_model = _cost_model(scenario.model, described.shape, described.classes, scenario.task)
    recipe = recipe_of(scenario, scenario.methods[0])
    return StepCosts(cost_model, recipe, scenario.cost)


@cache
def _cost_model(model: Named[ModelSpec], shape: tuple[int, ...], classes: int, task: Task) -> CostModel:
    return CostModel(build_model(model.spec, shape, classes, task))


@cache
def _loaded(data: DataSpec, seed: int, split: Split) -> FederatedData:
    return load_federated(data, seed, "cpu", split)
