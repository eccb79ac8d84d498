"""Simulate a finished run again with the recorded results of training: the result must be the same log.

Everything that the scenario and the seed determine (capacities, cohorts, choices of blocks, sizes, steps, draws, every
second and joule) is derived again and compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from edgefl.cost.law import CostModel
from edgefl.errors import EdgeflError, UserError
from edgefl.experiment.recording import RecordedLearner, recording_of
from edgefl.experiment.round_optimum import optimum_of
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.summary import EarlyEnd, summarise
from edgefl.experiment.wiring import SharedWorld, recipe_of, setup_of, shared_world, skeleton
from edgefl.methods.recipe import METHODS
from edgefl.models.layout import digest_of_model
from edgefl.record.costs import StepRow
from edgefl.record.events import Event
from edgefl.record.kinds import EventKind
from edgefl.record.listener import Listener
from edgefl.record.rounds import ROUNDS
from edgefl.record.summary import SeedResult
from edgefl.scenario import Scenario
from edgefl.simulation.laws import Record, at, close
from edgefl.simulation.run import Outcome, simulate_run
from edgefl.simulation.setup import Setup
from edgefl.simulation.work import StepCost
from edgefl.training.faults import PartFault, blaming
from edgefl.training.neutral import NeutralLearner

_TRAINED: tuple[EventKind, ...] = ("evaluation", "feedback", "diverged")


def is_trained(record: Record) -> bool:
    """Whether a run was a run with training."""
    # A part may have failed before any training; then the log has the first model's digest.
    return any("model" in event.facts for event in record.of("run")) or any(record.by_kind.get(k) for k in _TRAINED)


class EndsHereError(EdgeflError):
    """Raised when there is nothing more to compare."""


class Comparison(Listener):
    """Compares derived rows with the rows of a log."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self.position = 0
        self.difference: str | None = None

    def events(self, rows: list[Event]) -> None:
        """Compare the next rows.

        Raises:
            EndsHereError: there is nothing more to compare.
        """
        if self.difference is not None:
            return  # others act in the same instant
        for event in rows:
            if self.position == len(self._events):
                self.difference = f"the log ends before the {at(event)} that follows from the scenario"
                raise EndsHereError
            logged = self._events[self.position]
            if logged.kind == "fault":  # a part raised an error that cannot be reproduced
                raise EndsHereError
            if logged != event and (name := _differing(logged, event)) is not None:
                found, expected = getattr(logged, name), getattr(event, name)
                self.difference = f"{at(logged)}: {name} is {found}, but {expected} follows from the scenario"
                raise EndsHereError
            self.position += 1

    @property
    def whole(self) -> bool:
        """Whether every row was derived, or every row up to a fault."""
        return self.position == len(self._events) or self._events[self.position].kind == "fault"


class ExecutionAgain:
    """Executes the runs of a directory again, one by one.

    Args:
        scenario: the scenario of the runs.
        costs: the steps in ``costs.json``, by label.
    """

    def __init__(self, scenario: Scenario, costs: Mapping[str, Sequence[StepRow]]) -> None:
        self._scenario = scenario
        self._known = costs
        self._world = lru_cache(maxsize=1)(self._new_world)
        self._model = lru_cache(maxsize=1)(lambda: CostModel(skeleton(scenario)))

    def differences(self, record: Record, label: str) -> Iterator[str]:
        """The differences between a run and its scenario's result, as sentences; of the rows only the first one."""
        early_end, comparison = EarlyEnd(), Comparison(record.events)
        outcome: Outcome | None = None
        try:
            with blaming(label, 0, "setup"):
                setup = self._setup(record, label, [early_end, comparison])
            with suppress(EndsHereError):
                outcome = simulate_run(setup)
            with suppress(EndsHereError):
                setup.log.flush()
        except (PartFault, UserError) as error:
            if isinstance(error, UserError) or not record.summary.faulted:
                yield f"the run cannot be executed again: {error}"
            return
        if comparison.difference is not None:
            yield comparison.difference
        elif not comparison.whole:
            yield f"{at(record.events[comparison.position])}: does not follow from the scenario"
        elif outcome is not None:
            block_wise = METHODS[self._scenario.method(label).name].scheduler is not None
            why = early_end.why(outcome)
            entry = summarise(outcome, record.summary.seed, block_wise=block_wise, why=why)
            yield from summed_up(record, outcome, entry)

    def final_model(self, record: Record, label: str, file: Path) -> Iterator[str]:
        """Check that ``final.safetensors``, if it exists, is the model from the last aggregation."""
        digests = recording_of(record.events).digests
        if not digests or not file.is_file():
            return
        from edgefl.experiment.final_models import read_model

        method = recipe_of(self._scenario, self._scenario.method(label))
        try:
            model = read_model(file, method.objective.adapt(self._model().model).layout)
        except UserError as error:
            yield f"{file.name} cannot be read: {error.message}"
            return
        if digest_of_model(model) != digests[max(digests)].model:
            yield f"{file.name} is not the model from the last aggregation"

    def _setup(self, record: Record, label: str, listeners: Sequence[Listener]) -> Setup:
        trains = is_trained(record)
        recorded = RecordedLearner(recording_of(record.events), label, EndsHereError) if trains else None
        method = self._scenario.method(label)
        costs = StepCosts(
            self._model(), recipe_of(self._scenario, method), self._scenario.cost, self._known.get(label, ())
        )

        def step(alpha: int, batch: int, level: int = 0) -> StepCost:
            if not costs.is_recorded(alpha, batch, level):
                if "fault" in record.by_kind:  # it ended the run before or during the measurement of this step
                    raise EndsHereError
                raise UserError(f"costs.json has no step with {alpha} blocks on {batch} images")
            return costs.step(alpha, batch, level)

        learner = recorded or NeutralLearner()
        world = self._world(record.summary.seed)
        setup = setup_of(
            self._scenario, method, world, costs, learner=learner, trains=trains, listeners=listeners, cost=step
        )
        return replace(setup, optimum=optimum_of(self._scenario, world, setup))

    def _new_world(self, seed: int) -> SharedWorld:
        scenario, data = self._scenario, None
        if "label_support" in scenario.training.selection.spec.start(seed).reads:
            from edgefl.data.federated import load_federated

            data = load_federated(scenario.data, seed, "cpu", scenario.evaluation.split)
        return shared_world(scenario, seed, data)


def summed_up(record: Record, outcome: Outcome, entry: SeedResult) -> Iterator[str]:
    """Compare the rounds and the summary's entry with those of the second execution."""
    for name in ROUNDS.names:
        derived = [_null(getattr(row, name)) for row in outcome.rows]
        if not _same(list(map(_null, record.rounds[name])), derived):
            yield f"rounds.parquet: the column {name} does not follow from the scenario"
    recorded = record.summary.written()
    for name, value in entry.written().items():
        if name not in recorded or not _same(recorded[name], value):
            yield f"{name}: summary.json has {recorded.get(name)}, but {value} follows from the scenario"


def _null(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _differing(logged: Event, derived: Event) -> str | None:
    """The first column in which two rows differ beyond rounding."""
    if logged.detail != derived.detail and not (derived.facts and _same(logged.facts, derived.facts)):
        return "detail"
    pairs = zip(Event._fields[:-1], logged[:-1], derived[:-1], strict=True)
    return next((name for name, a, b in pairs if not _same(a, b, clock=derived.time)), None)


def _same(a: Any, b: Any, *, clock: float = 0.0) -> bool:
    """Whether two values are equal up to rounding: another processor may round a logarithm differently."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or close(a, b, clock=clock) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key], clock=clock) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, clock=clock) for x, y in zip(a, b, strict=True))
    return bool(a == b)
