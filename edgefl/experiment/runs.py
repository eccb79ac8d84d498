"""The runs of a directory, one after another; and one of them: a method with a seed, from its setup to its entry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgefl.cost.data_dependence import DataDependentError
from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.experiment.directory import RunDirectory
from edgefl.experiment.faults import NotWritten, RunsFailed
from edgefl.experiment.final_models import FinalModels, kept_models_of
from edgefl.experiment.pausing import Pause, Pausing
from edgefl.experiment.resuming import Journal, ResumedLearner
from edgefl.experiment.round_optimum import optimum_of
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.summary import EarlyEnd, summarise
from edgefl.experiment.wiring import SharedWorld, limits_of, setup_of
from edgefl.options import Options
from edgefl.record import RunPaths
from edgefl.record.costs import StepRow, write_costs
from edgefl.record.events import Listener, ListenerError, marked
from edgefl.record.paths import SeedPaths
from edgefl.record.rounds import RoundRow
from edgefl.record.summary import SeedResult, write_summary
from edgefl.record.tables import event_file, write_rounds
from edgefl.scenario import Scenario
from edgefl.scenario.methods import ScenarioMethod
from edgefl.simulation.run import Outcome, simulate_run, unbegun_run
from edgefl.simulation.setup import Setup, Testbed
from edgefl.training.faults import PartFault, blaming
from edgefl.training.job import Learner
from edgefl.training.neutral import NeutralLearner

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore


MakeTestbed = Callable[[Setup, SeedPaths], AbstractContextManager[Testbed]]
"""Makes the real links of a run, for the time of the run, and writes its measurements next to the run's files."""


class Runs(Listener):
    """Executes the runs of a directory that have not finished, one after another; a subclass says how.

    ``listeners`` follow all runs, after what writes them; ``fault`` is the error of a part that ended one of its runs.
    """

    resumable = True
    """Whether runs that ended by a fault can be tried again in the directory."""

    def __init__(
        self,
        scenario: Options,
        directory: RunDirectory,
        listeners: Sequence[Listener],
        *,
        name: str,
        seeds: Sequence[int],
        rounds: int,
    ) -> None:
        self.directory = directory
        self.listeners = [self, *map(marked, listeners)]
        self.fault: PartFault | None = None
        self._scenario, self._name, self._seeds, self._rounds = scenario, name, seeds, rounds
        self._rounds_ended = 0

    def round_ended(self, row: RoundRow) -> None:
        self._rounds_ended += 1

    def prepare(self, runs: int) -> None:
        """So many runs follow."""

    @abstractmethod
    def run_seed(self, seed: int, labels: Sequence[str]) -> None:
        """Run these methods with one seed; each within :meth:`one`."""

    @abstractmethod
    def costs(self) -> dict[str, list[StepRow]]:
        """The steps of each method, for ``costs.json``."""

    def one(self, label: str, seed: int, run: Callable[[], tuple[SeedResult, Iterable[tuple[int, ...]]]]) -> None:
        """Execute one run, which returns its entry and the keys of its step costs."""
        for listener in self.listeners:
            listener.run_began(label, seed)
        entry, costs = run()
        self.directory.run_finished(label, seed, entry, costs)
        for listener in self.listeners:
            listener.run_ended(entry)

    def execute(self) -> Path:
        """Execute what is left, and write the summary; see :func:`edgefl.experiment.run` for its errors."""
        directory = self.directory
        try:
            self._execute()
        except ListenerError as failure:
            raise failure.error from failure.error.__cause__
        except UserError:
            if not self._rounds_ended:
                directory.forget()
            raise
        except OSError as error:
            if not directory.opened:
                raise
            raise NotWritten(directory.path, error) from error
        ended = {run: known.entry for run, known in directory.finished.items()}
        faults = {run: entry.stop.message or "" for run, entry in ended.items() if entry.faulted}
        if faults:
            raise RunsFailed(directory.path, len(ended), faults, resumable=self.resumable) from self.fault
        return directory.path

    def _execute(self) -> None:
        directory, labels = self.directory, self.directory.choices.methods
        runs = [(label, seed) for seed in self._seeds for label in labels]
        left = [run for run in runs if run not in directory.finished]
        for listener in self.listeners:
            listener.began(left, self._rounds)
        self.prepare(len(left))
        for seed in self._seeds:
            if chosen := [label for label in labels if (label, seed) in left]:
                self.run_seed(seed, chosen)
        entries = {label: [directory.finished[label, seed].entry for seed in self._seeds] for label in labels}
        write_costs(self.costs(), directory.paths.costs)
        directory.seeds_added(self._scenario)
        write_summary(self._name, entries, directory.paths.summary, directory.inputs, directory.software)
        directory.all_finished()


class OneRun:
    """One run of an experiment, in a folder of its own in the experiment's ``directory``.

    Its listeners are called in this order: what writes and ends the run; those of the experiment; and the pause, so
    that nothing is lost if it ends the run. ``fault`` is the error of a part of the method, if it ended the run.
    """

    def __init__(
        self,
        scenario: Scenario,
        method: ScenarioMethod,
        world: SharedWorld,
        costs: StepCosts,
        directory: RunPaths,
        *,
        listeners: Sequence[Listener] = (),
        pause: Pause | None = None,
        testbed: MakeTestbed | None = None,
    ) -> None:
        self._testbed = testbed
        self._scenario = scenario
        self._method = method
        self._world = world
        self._costs = costs
        self._paths = directory.make(method.label, world.seed)
        last, metric = scenario.training.rounds, scenario.task.measured
        pausing = [] if pause is None else [Pausing(pause, method.label, world.seed, last, self._paths, metric)]
        self._followers = [*listeners, *pausing]
        self._early_end = EarlyEnd()
        self.fault: PartFault | None = None

    def timed(self) -> SeedResult:
        """Simulate without training; an interrupted run starts again, which takes milliseconds per round."""
        return self._entry(self._simulate(NeutralLearner(), trains=False))

    def replayed(self, learner: Learner) -> SeedResult:
        """Simulate with the recorded results of a finished run in place of training."""
        return self._entry(self._simulate(learner, trains=True))

    def trained(self, core: TrainingCore, data: FederatedData) -> SeedResult:
        """Simulate with training, and store the results on disk after every round."""
        scenario, method, seed = self._scenario, self._costs.method, self._world.seed
        models = kept_models_of(scenario)
        try:
            with blaming(self._method.label, 0, "setup"):
                learner = core.learner(method, models)
        except PartFault as fault:
            with event_file(self._paths.events) as table:
                return self._entry(self._unbegun([table, *self._followers], fault))
        final_models = FinalModels(scenario, self._paths, core, data, seed, method, learner, models)
        last = scenario.training.rounds if scenario.personalisation is None else None
        keeps = scenario.keep_models != "none" and self._testbed is None
        paths, label = self._paths, self._method.label
        kept = paths.checkpoint if keeps else None
        with (
            Journal(paths.journal) as journal,
            ResumedLearner(learner, label, journal, paths.checkpoints, last, kept=kept) as resumed,
        ):
            writers = [journal, resumed, final_models]
            outcome = self._simulate(cast("Learner", resumed), trains=True, writers=writers)
        return self._entry(outcome).model_copy(update=final_models.results)

    def _simulate(self, learner: Learner, *, trains: bool, writers: Sequence[Listener] = ()) -> Outcome:
        with event_file(self._paths.events) as table:
            listeners = [self._early_end, *writers, table, *self._followers]
            try:
                with blaming(self._method.label, 0, "setup"):
                    setup = setup_of(
                        self._scenario,
                        self._method,
                        self._world,
                        self._costs,
                        learner=learner,
                        trains=trains,
                        listeners=listeners,
                        cost=self._step_cost,
                    )
            except PartFault as fault:
                return self._unbegun(listeners, fault)
            with ExitStack() as stack:
                if self._testbed is not None:
                    made = stack.enter_context(self._testbed(setup, self._paths))
                    setup = replace(setup, testbed=made)
                outcome = simulate_run(replace(setup, optimum=optimum_of(self._scenario, self._world, setup)))
        self.fault = outcome.fault
        return outcome

    def _unbegun(self, listeners: Sequence[Listener], fault: PartFault) -> Outcome:
        self.fault = fault
        return unbegun_run(self._method.label, self._world.seed, limits_of(self._scenario), listeners, fault)

    def _step_cost(self, alpha: int, batch: int, level: int = 0) -> StepCost:
        label, part = self._method.label, "measuring a local step"
        with blaming(label, 0, part):
            try:
                return self._costs.step(alpha, batch, level)
            except DataDependentError as error:
                raise PartFault(label, 0, part, error.reason) from error

    def _entry(self, outcome: Outcome) -> SeedResult:
        write_rounds(outcome.rows, self._paths.rounds)
        block_wise = self._scenario.method(self._method.label).recipe.scheduler is not None
        return summarise(outcome, self._world.seed, block_wise=block_wise, why=self._early_end.why(outcome))
