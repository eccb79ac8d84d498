"""The share of a run's wall-clock that is neither training nor evaluation."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor

from edgefl.data.federated import load_federated
from edgefl.experiment.one_run import OneRun
from edgefl.experiment.wiring import shared_world, step_costs
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import build_model
from edgefl.process_state import process_state_kept
from edgefl.record import RunPaths
from edgefl.scenario import Scenario
from edgefl.training.base import Around, Arrived, Engine, JobResult, JobTask, ignored
from edgefl.training.client_data import ClientData
from edgefl.training.core import TrainingCore
from edgefl.training.device import choose_device
from edgefl.training.job import Evaluation


class Watched(Around):
    """An engine with a stopwatch that runs while the engine trains or evaluates.

    The time in which the caller processes results is not training, unless workers train other jobs at the same time.

    Args:
        engine: does the work.
        seconds: an array of one number, to which the duration of the work is added.
        overlaps: whether the engine returns a result while it trains other jobs; then only the caller's time after the
            last result is excluded.
    """

    def __init__(self, engine: Engine, seconds: list[float], *, overlaps: bool = False) -> None:
        super().__init__(engine)
        self._seconds = seconds
        self._overlaps = overlaps

    def train(self, tasks: Sequence[JobTask], arrived: Arrived = ignored) -> list[JobResult]:
        """Train all jobs."""
        aside: list[float] = []

        def timed(place: int, result: JobResult) -> None:
            began = perf_counter()
            arrived(place, result)
            aside.append(perf_counter() - began)

        start = perf_counter()
        try:
            return self._engine.train(tasks, timed)
        finally:
            self._seconds[0] += perf_counter() - start - sum(aside[-1:] if self._overlaps else aside)

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the evaluation split."""
        start = perf_counter()
        try:
            return self._engine.evaluate(vector, mode)
        finally:
            self._seconds[0] += perf_counter() - start


class WatchedCore(TrainingCore):
    """A training core whose engines share a stopwatch; ``working_seconds`` is its value."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._seconds = [0.0]
        super().__init__(*arguments, **options)

    @property
    def working_seconds(self) -> float:
        """Seconds of training and evaluation so far."""
        return self._seconds[0]

    def engine_for(self, model: BlockModel, part: str = "") -> Engine:
        """A new engine with the stopwatch on it."""
        return Watched(super().engine_for(model, part), self._seconds, overlaps=self.engine_name == "parallel")


@process_state_kept()
def share_outside(scenario: Scenario, device: str = "auto") -> list[dict[str, Any]]:
    """The share of a run's wall-clock outside training and evaluation, once everything is imported and data are loaded.

    Every method of the scenario runs with every seed, one after another with one training core a seed, as in a run of
    the scenario, but without a cache of results, so that all of them train.

    Args:
        scenario: the scenario to run.
        device: where training runs.

    Returns:
        A row for each method, and a last row for all together, including the time that they share.
    """
    spent, everything = {method.label: _Spent() for method in scenario.methods}, _Spent()
    start = perf_counter()
    costs = step_costs(scenario, spent)
    everything.add(0, perf_counter() - start, 0.0)
    for seed in scenario.seeds:
        data = load_federated(scenario.data, seed, choose_device(device), scenario.evaluation.split)
        start = perf_counter()
        world = shared_world(scenario, seed, data)
        model = build_model(scenario.model.spec, data.shape, data.classes, scenario.task, tokens=data.tokens)
        with WatchedCore(ClientData(data), model, seed, data.train.device, engine=scenario.training.engine) as core:
            for method in scenario.methods:
                began, before = perf_counter(), core.working_seconds
                with tempfile.TemporaryDirectory() as folder:
                    one = OneRun(scenario, method, world, costs[method.label], RunPaths(Path(folder)))
                    rounds = one.trained(core, data).rounds
                spent[method.label].add(rounds, perf_counter() - began, core.working_seconds - before)
        everything.add(0, perf_counter() - start, core.working_seconds)
    everything.rounds = sum(each.rounds for each in spent.values())
    return [
        {
            "scenario": scenario.name, "method": label, "rounds": each.rounds, "seconds": each.seconds,
            "working_seconds": each.working, "share_outside": 1 - each.working / each.seconds,
        }
        for label, each in (*spent.items(), ("all", everything))
    ]  # fmt: skip


@dataclass
class _Spent:
    """The totals of some runs: rounds, wall-clock, and wall-clock of training and evaluation."""

    rounds: int = 0
    seconds: float = 0.0
    working: float = 0.0

    def add(self, rounds: int, seconds: float, working: float) -> None:
        self.rounds += rounds
        self.seconds += seconds
        self.working += working
