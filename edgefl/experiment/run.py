"""A scenario times methods times seeds: runs them all and writes the run directory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import UserError
from edgefl.experiment.client_accuracy import accuracy_of_clients
from edgefl.experiment.progress import Progress, Silent
from edgefl.experiment.step_costs import StepCosts, write_costs
from edgefl.experiment.summary import summarise, write_summary
from edgefl.experiment.tables import EventFile, write_rounds
from edgefl.experiment.wiring import recipe_of, setup_of, shared_world, skeleton
from edgefl.learning.cost.law import CostModel
from edgefl.learning.methods.recipe import METHODS
from edgefl.learning.neutral import NeutralLearner
from edgefl.scenario import Scenario, dump_yaml, resolve
from edgefl.scenario.methods import ScenarioMethod
from edgefl.simulation.run import simulate_run
from edgefl.simulation.setup import RoundRow

if TYPE_CHECKING:
    from edgefl.learning.data.federated import FederatedData
    from edgefl.learning.engine.core import TrainingCore


def run(
    scenario: Scenario,
    *,
    out: Path,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    engine: str = "auto",
    train: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Run the scenario's methods with each of its seeds, and write a run directory.

    Args:
        scenario: what is compared.
        out: the run directory; made, and must not hold a run.
        methods: labels of the methods to run; all of them if not given.
        device: ``auto``, ``cpu`` or ``cuda``: where training runs.
        engine: ``auto`` or an engine's name: how training runs.
        train: ``False`` runs the world alone, with neutral numbers in place of training.
        progress: told what happens.

    Returns:
        The run directory.

    Raises:
        UserError: data files are missing, or something does not fit; nothing was written then.
    """
    watcher = progress or Silent()
    chosen = list(scenario.methods) if methods is None else [scenario.method(label) for label in methods]
    experiment = _Experiment(scenario, chosen, out, device=device, engine=engine, train=train, progress=watcher)
    try:
        watcher.begin([(m.label, seed) for seed in scenario.seeds for m in chosen], scenario.training.rounds)
        for seed in scenario.seeds:
            experiment.run_seed(seed)
    finally:
        watcher.close()
    return experiment.finish()


class _Experiment:
    """The runs of one directory, one after another."""

    def __init__(
        self,
        scenario: Scenario,
        methods: Sequence[ScenarioMethod],
        out: Path,
        *,
        device: str,
        engine: str,
        train: bool,
        progress: Progress,
    ) -> None:
        self._scenario = scenario
        self._methods = methods
        self._out = out
        self._device = device
        self._engine = engine
        self._train = train
        self._progress = progress
        self._model = skeleton(scenario)
        cost_model = CostModel(self._model)
        self._costs = {each.label: StepCosts(cost_model, recipe_of(scenario, each)) for each in methods}
        self._entries: dict[str, list[dict[str, Any]]] = {each.label: [] for each in methods}

    def run_seed(self, seed: int) -> None:
        """Every method with one seed; they share data, first model and evaluations."""
        data = self._load(seed) if self._train or self._selection_reads_labels(seed) else None
        world = shared_world(self._scenario, seed, data)
        self._make_directory()
        with self._core(seed, data if self._train else None) as core:
            for method in self._methods:
                trained = None if core is None else core.learner(self._costs[method.label].method)
                folder = self._out / method.label / f"seed-{seed}"
                folder.mkdir(parents=True, exist_ok=True)

                def on_round(row: RoundRow, label: str = method.label) -> None:
                    known = None if math.isnan(row.accuracy) else row.accuracy
                    self._progress.round(label, seed, row.round, row.seconds, known)

                with EventFile(folder / "events.parquet") as sink:
                    setup = setup_of(
                        self._scenario,
                        method,
                        world,
                        self._costs[method.label],
                        learner=trained or NeutralLearner(),
                        trains=self._train,
                        sink=sink,
                        on_round=on_round,
                    )
                    outcome = simulate_run(setup)
                write_rounds(outcome.rows, folder / "rounds.parquet")
                block_wise = METHODS[method.name].scheduler is not None
                entry = summarise(outcome, seed, block_wise=block_wise)
                if core is not None and trained is not None and data is not None:
                    entry |= accuracy_of_clients(
                        self._costs[method.label].method,
                        trained.model(outcome.rounds),
                        outcome.rounds,
                        core=core,
                        data=data,
                        seed=seed,
                        personalisation=self._scenario.personalisation,
                        path=folder / "clients.parquet",
                    )
                self._entries[method.label].append(entry)
                self._progress.end(method.label, seed, outcome.reason)

    def _selection_reads_labels(self, seed: int) -> bool:
        return "label_support" in self._scenario.training.selection.spec.start(seed).reads

    def finish(self) -> Path:
        """Write what covers all runs."""
        write_costs(self._costs, self._out / "costs.json")
        write_summary(self._scenario.name, self._entries, self._out / "summary.json")
        return self._out

    def _make_directory(self) -> None:
        if (self._out / "scenario.yaml").exists():
            return
        resolved = resolve(self._scenario)
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            (self._out / "scenario.yaml").write_text(dump_yaml(resolved), encoding="utf-8")
        except OSError as error:
            raise UserError(f"the run directory cannot be written: {error.strerror}", file=str(self._out)) from None

    def _load(self, seed: int) -> FederatedData:
        from edgefl.learning.data.federated import load_federated
        from edgefl.learning.engine.device import choose_device

        return load_federated(self._scenario.data, seed, choose_device(self._device), self._scenario.evaluation.split)

    def _core(self, seed: int, data: FederatedData | None) -> AbstractContextManager[TrainingCore | None]:
        if data is None:
            return nullcontext()
        from edgefl.learning.engine.core import TrainingCore

        return TrainingCore.of(data, self._scenario.model.spec, seed, engine=self._engine)
