"""All runs of one run directory, one after another: each method with each seed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.experiment.directory import RunDirectory
from edgefl.experiment.faults import RunsFailed
from edgefl.experiment.guarded import Guarded
from edgefl.experiment.inputs import Inputs
from edgefl.experiment.one_run import MakeTestbed, OneRun
from edgefl.experiment.pausing import Pause
from edgefl.experiment.software import software_of
from edgefl.experiment.wiring import shared_world, step_costs
from edgefl.record.costs import write_costs
from edgefl.record.listener import Listener
from edgefl.record.summary import write_summary
from edgefl.scenario import Scenario
from edgefl.scenario.last_batches import check_last_batches
from edgefl.training.faults import PartFault

if TYPE_CHECKING:
    from edgefl.data.federated import FederatedData
    from edgefl.training.core import TrainingCore


class AllRuns:
    """Executes the runs of a directory that have not finished.

    Args:
        scenario: the scenario.
        directory: receives the results.
        listeners, pause, testbed, results: as for :func:`edgefl.experiment.run`.

    Attributes:
        at: the current position, in words.
        rounds: rounds that ended, of all runs.
    """

    def __init__(
        self,
        scenario: Scenario,
        directory: RunDirectory,
        listeners: Sequence[Listener],
        pause: Pause | None,
        *,
        testbed: MakeTestbed | None,
        results: Path | None,
    ) -> None:
        self.at = "before the first run"
        self.rounds = 0
        self._listeners = [Guarded(listener) for listener in listeners]
        self._pause = pause
        self._testbed = testbed
        self._results = results
        self._scenario = scenario
        self._directory = directory
        self._choices = directory.choices
        self._inputs = Inputs(scenario, directory.path)
        self._check_inputs()
        directory.use_software(software_of(scenario))
        self._fault: PartFault | None = None
        self._methods = [scenario.method(label) for label in self._choices.methods]
        self._costs = step_costs(scenario, [method.label for method in self._methods])
        for (label, seed), known in directory.finished.items():
            for key in known.costs:
                alpha, batch, *_ = key
                if not self._costs[label].has(*key):
                    raise directory.damaged(f"'{label}', seed {seed}: no step has {alpha} blocks and {batch} images")
                self._costs[label].step(*key)

    def begin(self) -> None:
        """Report the runs to execute, and start worker processes if they will be needed."""
        runs = [(method.label, seed) for seed in self._scenario.seeds for method in self._methods]
        left = [run for run in runs if run not in self._directory.finished]
        for listener in self._listeners:
            listener.began(left, self._scenario.training.rounds)
        if self._choices.train:
            from edgefl.experiment.precision_advice import precision_advice
            from edgefl.experiment.worker_start import begin_workers

            if left and (advice := precision_advice(self._scenario, self._choices.device)) is not None:
                for listener in self._listeners:
                    listener.advised(advice)
            begin_workers(self._scenario, self._choices.device, len(left))

    def run_seed(self, seed: int) -> None:
        """Run every unfinished method with one seed; they share data, initial model and evaluations."""
        methods = [method for method in self._methods if (method.label, seed) not in self._directory.finished]
        if not methods:
            return
        self._check_inputs()
        data = self._load(seed) if self._choices.train or self._selection_reads_labels(seed) else None
        world = shared_world(self._scenario, seed, data)
        costs = [self._costs[method.label] for method in methods]
        check_last_batches(costs[0].model, [each.method.local for each in costs], world.samples)
        self._directory.open(self._scenario)
        with self._core(seed, data) as core:
            for method in methods:
                self._check_inputs()
                cost = self._costs[method.label]
                for listener in self._listeners:
                    listener.run_began(method.label, seed)
                one = OneRun(
                    self._scenario,
                    method,
                    world,
                    cost,
                    self._directory.paths,
                    listeners=self._listeners,
                    pause=self._pause,
                    testbed=self._testbed,
                )
                try:
                    entry = one.timed() if core is None or data is None else one.trained(core, data)
                finally:
                    self.at = f"after round {one.rounds} of {method.label}, seed {seed}"
                    self.rounds += one.rounds
                self._fault = self._fault or one.fault
                self._directory.run_finished(method.label, seed, entry, sorted(cost.used))
                for listener in self._listeners:
                    listener.run_ended(entry)
        memory = core.memory if core is not None else None
        if memory is not None and memory.found:
            for listener in self._listeners:
                listener.results_reused(seed, memory.trained, memory.found)
        shutil.rmtree(self._directory.paths.results, ignore_errors=True)

    def finish(self) -> None:
        """Write the files that cover all runs."""
        paths, finished = self._directory.paths, self._directory.finished
        # Again, in case the process was killed before a seed's results were removed.
        shutil.rmtree(paths.results, ignore_errors=True)
        entries = {
            method.label: [finished[method.label, seed].entry for seed in self._scenario.seeds]
            for method in self._methods
        }
        write_costs({label: each.rows() for label, each in self._costs.items()}, paths.costs)
        self._directory.extended(self._scenario)
        write_summary(self._scenario.name, entries, paths.summary, self._directory.inputs, self._directory.software)
        self._directory.all_finished()

    def check_faults(self) -> None:
        """Raise :class:`RunsFailed` if a run ended by a fault, in this process or earlier."""
        finished = self._directory.finished
        faults = {run: known.entry.stop.message or "" for run, known in finished.items() if known.entry.faulted}
        if faults:
            raise RunsFailed(self._directory.path, len(finished), faults) from self._fault

    def _check_inputs(self) -> None:
        """Check that the input files have not changed, also between runs."""
        trains = self._choices.train or self._selection_reads_labels(self._scenario.seeds[0])
        self._directory.read_inputs(self._inputs.now(trains=trains))

    def _selection_reads_labels(self, seed: int) -> bool:
        return "label_support" in self._scenario.training.selection.spec.start(seed).reads

    def _load(self, seed: int) -> FederatedData:
        from edgefl.data.federated import load_federated
        from edgefl.training.accelerator import room_for_data
        from edgefl.training.device import choose_device

        device = choose_device(self._choices.device)
        split, room = self._scenario.evaluation.split, room_for_data(device)
        return load_federated(self._scenario.data, seed, device, split, room=room)

    def _trains_alike(self) -> bool:
        """Whether two methods differ at most in when and where they send, so that they can share cached results.

        Storing a result costs a few percent of its training time, so results are stored only if they can be used.
        """
        recipes = [replace(costs.method, name="", label="", overlap=False) for costs in self._costs.values()]
        return any(one == other for one, other in combinations(recipes, 2))

    def _core(self, seed: int, data: FederatedData | None) -> AbstractContextManager[TrainingCore | None]:
        if data is None or not self._choices.train:
            return nullcontext()
        from edgefl.training.core import TrainingCore
        from edgefl.training.result_memory import ResultMemory

        memory = None
        if self._results is not None:
            memory = ResultMemory(self._results / str(seed))
        elif self._choices.cache and self._trains_alike():
            memory = ResultMemory(self._directory.paths.results_of(seed))
        return TrainingCore.of(
            data,
            self._scenario.model.spec,
            seed,
            engine=self._scenario.training.engine,
            memory=memory,
        )
