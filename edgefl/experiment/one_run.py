"""One run: a method with a seed, from its setup to its entry; resumed from its journal and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, cast

from edgefl.cost.measure import StepCost
from edgefl.data.federated import FederatedData
from edgefl.experiment.checkpoints import ResumedLearner
from edgefl.experiment.final_models import FinalModels, kept_models_of
from edgefl.experiment.journal import Journal
from edgefl.experiment.round_optimum import optimum_of
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.summary import EarlyEnd, summarise
from edgefl.experiment.wiring import SharedWorld, limits_of, setup_of, world_for
from edgefl.models.data_dependence import DataDependentError
from edgefl.record import RunPaths
from edgefl.record.events import Listener
from edgefl.record.paths import SeedPaths
from edgefl.record.summary import SeedResult
from edgefl.record.tables import event_file, write_rounds
from edgefl.scenario import Scenario
from edgefl.scenario.methods import ScenarioMethod
from edgefl.simulation.run import Outcome, simulate_run, unbegun_run
from edgefl.simulation.setup import Setup, Testbed
from edgefl.training.core import TrainingCore
from edgefl.training.faults import PartFault, blaming
from edgefl.training.job import Learner, NeutralLearner

MakeTestbed = Callable[[Setup, SeedPaths], AbstractContextManager[Testbed]]
"""Makes the real links of a run, for the time of the run, and writes its measurements next to the run's files."""


class OneRun:
    """One run in a folder of ``directory``, with the experiment's listeners last; ``fault`` ended it, if one did."""

    def __init__(
        self,
        scenario: Scenario,
        method: ScenarioMethod,
        world: SharedWorld,
        costs: StepCosts,
        directory: RunPaths,
        *,
        listeners: Sequence[Listener] = (),
        testbed: MakeTestbed | None = None,
    ) -> None:
        self._testbed = testbed
        self._scenario, self._world = world_for(scenario, world, costs.method)
        self._method, self._costs = method, costs
        self._paths = directory.make(method.label, world.seed)
        self._followers = listeners
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
                learner = core.learner(method, models, peers=scenario.protocol.own_models)
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
        labels = data.evaluation.labels
        counted = data.evaluation.task.counted(labels.cpu().numpy()).sum()
        entry = self._entry(outcome)
        metric = entry.metric.model_copy(update={"samples": len(labels), "labels": int(counted)})
        return entry.model_copy(update={"metric": metric, **final_models.results})

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
                testbed = self._testbed and stack.enter_context(self._testbed(setup, self._paths))
                optimum = None if testbed else optimum_of(self._scenario, setup)
                outcome = simulate_run(setup, testbed=testbed, optimum=optimum)
        return outcome

    def _unbegun(self, listeners: Sequence[Listener], fault: PartFault) -> Outcome:
        return unbegun_run(self._method.label, self._world.seed, limits_of(self._scenario), listeners, fault)

    def _step_cost(self, *key: Any) -> StepCost:
        label, part = self._method.label, "measuring a local step"
        with blaming(label, 0, part):
            try:
                return self._costs.step(*key)
            except DataDependentError as error:
                raise PartFault(label, 0, part, error.reason) from error

    def _entry(self, outcome: Outcome) -> SeedResult:
        self.fault = outcome.fault
        write_rounds(outcome.rows, self._paths.rounds)
        block_wise = self._scenario.method(self._method.label).recipe.scheduler is not None
        return summarise(outcome, self._world.seed, block_wise=block_wise, why=self._early_end.why(outcome))
