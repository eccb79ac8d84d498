"""Run the apps of a scenario, and write the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefl.errors import UserError, nearest
from edgefl.experiment.directory import RunDirectory
from edgefl.experiment.early_end import EarlyEnd
from edgefl.experiment.faults import NotWritten, RunsFailed, storage_reason
from edgefl.experiment.guarded import Guarded, ListenerError
from edgefl.experiment.inputs import SCENARIO, Input, digest_of_scenario
from edgefl.experiment.software import versions_of
from edgefl.experiment.state import Choices
from edgefl.experiment.step_costs import row_of
from edgefl.experiment.summary import summarise
from edgefl.flower.app import digest_of_app, read_app, require_flwr
from edgefl.flower.client_work import Costs
from edgefl.flower.scenario import AppMethod, AppScenario
from edgefl.flower.setup import run_app
from edgefl.process_state import process_state_kept
from edgefl.record import RunPaths, names
from edgefl.record.costs import write_costs
from edgefl.record.listener import Listener
from edgefl.record.summary import SeedResult, write_summary
from edgefl.record.tables import EventFile, write_rounds
from edgefl.scenario import resolve
from edgefl.training.faults import PartFault

PACKAGES = ("flwr", "torch")
"""The packages on which results depend, as far as edgefl knows; an app may need more."""


def run(
    scenario: AppScenario, *, out: Path, methods: Sequence[str] | None = None, listeners: Sequence[Listener] = ()
) -> Path:
    """Run each method of a scenario with each of its seeds, and write a run directory.

    Args:
        scenario: the scenario.
        out: the run directory, new or empty.
        methods: labels of the methods to run; all of them if not given.
        listeners: follow all runs, in this order.

    Raises:
        UserError: flwr or an app is missing or cannot be imported, or ``out`` is not empty.
        RunsFailed: a ``ServerApp`` raised an error; the directory is complete and contains the error.
        NotWritten: files could not be written.
    """
    require_flwr()
    labels = [each.label for each in scenario.methods]
    for label in methods or ():
        if label not in labels:
            raise UserError(
                f"the scenario '{scenario.name}' has no method labelled '{label}'; {nearest(label, labels)}"
            )
    chosen = [each for each in scenario.methods if methods is None or each.label in methods]
    for method in chosen:
        read_app(scenario.app_of(method))
    choices = Choices(methods=tuple(method.label for method in chosen), device="cpu", train=True)
    with RunDirectory(out.absolute(), choices) as directory, process_state_kept():
        try:
            return _Runs(scenario, chosen, directory, listeners).execute()
        except ListenerError as failure:
            raise failure.error from failure.error.__cause__
        except UserError:
            directory.forget()
            raise
        except OSError as error:
            if not directory.opened:
                raise
            raise NotWritten(directory.path, storage_reason(error), resumable=False) from error


def inputs_of(scenario: AppScenario, folder: Path) -> dict[str, Input]:
    """The digests of a run's inputs: the scenario, and the code of each app.

    Raises:
        UserError: an app's folder does not exist.
    """
    found = {SCENARIO: Input(str(folder / names.SCENARIO), digest_of_scenario(resolve(scenario)))}
    return found | {field: Input(app, digest_of_app(app)) for field, app in scenario.apps().items()}


class _Runs:
    """The runs of one directory, in sequence."""

    def __init__(
        self, scenario: AppScenario, methods: list[AppMethod], directory: RunDirectory, listeners: Sequence[Listener]
    ) -> None:
        self._scenario, self._methods, self._directory = scenario, methods, directory
        self._listeners = [Guarded(listener) for listener in listeners]
        self._costs = {method.label: Costs() for method in methods}
        self._fault: PartFault | None = None

    def execute(self) -> Path:
        """Run everything, and return the directory."""
        directory, scenario = self._directory, self._scenario
        directory.use_software(versions_of(PACKAGES))
        runs = [(method.label, seed) for seed in scenario.seeds for method in self._methods]
        for listener in self._listeners:
            listener.began(list(runs), self._planned_rounds())
        for seed in scenario.seeds:
            for method in self._methods:
                directory.read_inputs(inputs_of(scenario, directory.path))
                directory.open(scenario)
                for listener in self._listeners:
                    listener.run_began(method.label, seed)
                entry = self._run(method, seed)
                directory.run_finished(method.label, seed, entry, [])
                for listener in self._listeners:
                    listener.run_ended(entry)
        entries = {
            method.label: [directory.finished[method.label, seed].entry for seed in scenario.seeds]
            for method in self._methods
        }
        write_costs(
            {label: [row_of(1, step.batch, step) for step in costs.used] for label, costs in self._costs.items()},
            directory.paths.costs,
        )
        write_summary(scenario.name, entries, directory.paths.summary, directory.inputs, directory.software)
        directory.all_finished()
        faults = {run: directory.finished[run].entry.stop.message or "" for run in runs if self._failed(run)}
        if faults:
            raise RunsFailed(directory.path, len(runs), faults, resumable=False) from self._fault
        return directory.path

    def _failed(self, run: tuple[str, int]) -> bool:
        return self._directory.finished[run].entry.faulted

    def _run(self, method: AppMethod, seed: int) -> SeedResult:
        paths = RunPaths(self._directory.path).make(method.label, seed)
        early_end = EarlyEnd()
        with EventFile(paths.events) as table:
            listeners = [early_end, table, *self._listeners]
            outcome = run_app(self._scenario, method, seed, self._costs[method.label], listeners)
        self._fault = self._fault or outcome.fault
        write_rounds(outcome.rows, paths.rounds)
        return summarise(outcome, seed, block_wise=False, why=early_end.why(outcome))

    def _planned_rounds(self) -> int:
        """The rounds that the apps' configurations name, for the progress display."""
        found = [read_app(self._scenario.app_of(method))[1] for method in self._methods]
        rounds = [value for config in found for key, value in config.items() if "rounds" in key and type(value) is int]
        return max(rounds, default=1)
