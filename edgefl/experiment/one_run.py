"""One method with one seed: its tables, its journal while it is in progress, and its entry in the summary."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgefl.cost.recorder import DataDependentError
from edgefl.experiment.conclusion import Conclusion, keepsakes_of
from edgefl.experiment.early_end import EarlyEnd
from edgefl.experiment.journal import Journal
from edgefl.experiment.pausing import Pause, Paused, write_standing
from edgefl.experiment.progress import Progress
from edgefl.experiment.resumed_learner import ResumedLearner
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.summary import summarise
from edgefl.experiment.wiring import SharedWorld, limits_of, setup_of
from edgefl.methods.recipe import METHODS
from edgefl.record import RunPaths
from edgefl.record.events import Event, EventLog, Sink
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import ClientResult, SeedResult
from edgefl.record.tables import EventFile, write_rounds
from edgefl.scenario import Scenario
from edgefl.scenario.methods import ScenarioMethod
from edgefl.simulation.run import Outcome, simulate_run, unbegun_run
from edgefl.simulation.work import StepCost
from edgefl.training.faults import PartFault, blaming
from edgefl.training.job import Learner
from edgefl.training.neutral import NeutralLearner

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore


class OneRun:
    """One run of an experiment.

    Args:
        scenario: the scenario.
        method: the method.
        world: the fleet and data that all methods of the seed share.
        costs: the step costs of the method.
        directory: the experiment's run directory; a folder for the run is created in it.
        pause: when to pause the run; never if not given.

    Attributes:
        fault: the error of a part of the method, if it ended the run.
        rounds: the number of completed rounds.
    """

    def __init__(
        self,
        scenario: Scenario,
        method: ScenarioMethod,
        world: SharedWorld,
        costs: StepCosts,
        directory: RunPaths,
        *,
        pause: Pause | None = None,
    ) -> None:
        self._scenario = scenario
        self._method = method
        self._world = world
        self._costs = costs
        self._paths = directory.make(method.label, world.seed)
        self._made = self._paths.folder.stat()
        self._pause = pause
        self._early_end = EarlyEnd()
        self.fault: PartFault | None = None
        self.rounds = 0

    def timed(self, progress: Progress) -> SeedResult:
        """Simulate without training; an interrupted run starts again, which takes milliseconds per round."""
        with EventFile(self._paths.events) as table:
            outcome = self._simulate(NeutralLearner(), table, progress, trains=False)
        return self._entry(outcome)

    def replayed(self, progress: Progress, learner: Learner) -> SeedResult:
        """Simulate with the recorded results of a finished run in place of training."""
        with EventFile(self._paths.events) as table:
            outcome = self._simulate(learner, table, progress, trains=True)
        return self._entry(outcome)

    def trained(self, progress: Progress, core: TrainingCore, data: FederatedData) -> SeedResult:
        """Simulate with training, and store the results on disk after every round."""
        kept, method = keepsakes_of(self._scenario), self._costs.method
        try:
            with blaming(self._method.label, 0, "setup"):
                learner = core.learner(method, kept)
        except PartFault as fault:
            with EventFile(self._paths.events) as table:
                return self._entry(self._unbegun(EventLog(table), fault))
        gained: dict[str, ClientResult] = {}

        def conclude(rounds: int) -> None:
            ended = Conclusion(core, data, self._world.seed, method, learner, kept, rounds)
            gained.update(ended.write(self._scenario, self._paths))

        last = self._scenario.training.rounds if self._scenario.personalisation is None else None
        with (
            Journal(self._paths.journal) as journal,
            ResumedLearner(learner, self._method.label, journal, self._paths.checkpoints, last) as resumed,
            EventFile(self._paths.events) as table,
        ):

            def sink(events: Sequence[Event]) -> None:
                journal.take(events)
                table(events)

            outcome = self._simulate(resumed, sink, progress, trains=True, resumed=resumed, on_end=conclude)
        return self._entry(outcome).model_copy(update=gained if outcome.fault is None else {})

    def _simulate(
        self,
        learner: Learner,
        sink: Sink,
        progress: Progress,
        *,
        trains: bool,
        resumed: ResumedLearner | None = None,
        on_end: Callable[[int], None] | None = None,
    ) -> Outcome:
        label, seed = self._method.label, self._world.seed

        def write(events: list[Event]) -> None:
            self._early_end.take(events)
            sink(events)

        log = EventLog(write)
        rows: list[RoundRow] = []

        def on_round(row: RoundRow) -> None:
            self.rounds = row.round
            self._check_place()
            if resumed is not None:
                log.flush()
                resumed.round_ended(row.round)
            progress.round(label, seed, row.round, row.seconds, None if math.isnan(row.accuracy) else row.accuracy)
            if self._pause is None:
                return
            rows.append(row)
            if row.round < self._scenario.training.rounds and self._pause.reached(row.round, row.seconds):
                if resumed is not None:
                    resumed.left(row.round)
                write_standing(self._paths, self._pause, seed, rows)
                raise Paused(label, row.round)

        try:
            with blaming(label, 0, "setup"):
                setup = setup_of(
                    self._scenario,
                    self._method,
                    self._world,
                    self._costs,
                    learner=learner,
                    trains=trains,
                    log=log,
                    on_round=on_round,
                )
        except PartFault as fault:
            return self._unbegun(log, fault)
        outcome = simulate_run(replace(setup, cost=self._step_cost, on_end=on_end))
        self.fault = outcome.fault
        return outcome

    def _check_place(self) -> None:
        """Stop if the folder was moved or removed, because then the results could not be written."""
        folder = self._paths.folder
        if not (folder.is_dir() and os.path.samestat(folder.stat(), self._made)):
            raise FileNotFoundError(errno.ENOENT, f"{folder} was moved or removed; stopped after round {self.rounds}")

    def _unbegun(self, log: EventLog, fault: PartFault) -> Outcome:
        """Return the outcome of a run in which a part of the method failed before the simulation started."""
        self.fault = fault
        return unbegun_run(self._method.label, self._world.seed, limits_of(self._scenario), log, fault)

    def _step_cost(self, alpha: int, batch: int) -> StepCost:
        label, part = self._method.label, "measuring a local step"
        with blaming(label, 0, part):
            try:
                return self._costs.step(alpha, batch)
            except DataDependentError as error:
                raise PartFault(label, 0, part, error.reason) from error

    def _entry(self, outcome: Outcome) -> SeedResult:
        write_rounds(outcome.rows, self._paths.rounds)
        block_wise = METHODS[self._method.name].scheduler is not None
        return summarise(outcome, self._world.seed, block_wise=block_wise, why=self._early_end.why(outcome))
