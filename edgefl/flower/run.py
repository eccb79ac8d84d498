"""Run or resume the apps of a scenario, and write the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefl.errors import UserError, nearest
from edgefl.experiment.directory import Choices, RunDirectory
from edgefl.experiment.faults import ListenerError, NotWritten, RunsFailed, marked
from edgefl.experiment.inputs import SCENARIO, Input, digest_of_scenario, versions_of
from edgefl.experiment.step_costs import row_of
from edgefl.experiment.summary import EarlyEnd, summarise
from edgefl.flower.app import digest_of_app, read_app, require_flwr
from edgefl.flower.client_work import Costs, Replies
from edgefl.flower.scenario import AppMethod, AppScenario, app_scenario_of
from edgefl.flower.setup import limits_of, run_app
from edgefl.record import RunPaths, names
from edgefl.record.costs import StepRow, read_costs, write_costs
from edgefl.record.events import Listener
from edgefl.record.summary import SeedResult, write_summary
from edgefl.record.tables import EventFile, write_rounds
from edgefl.scenario import resolve
from edgefl.simulation.run import unbegun_run
from edgefl.torch_settings import neutral_torch
from edgefl.training.faults import PartFault

PACKAGES = ("flwr", "torch")
"""The packages on which results depend, as far as edgefl knows; an app may need more."""


def run(
    scenario: AppScenario, *, out: Path, methods: Sequence[str] | None = None, listeners: Sequence[Listener] = ()
) -> Path:
    """Run each method of a scenario with each of its seeds, and write a run directory.

    Args:
        scenario: may also have methods that are not run.
        out: the run directory, new or empty.
        methods: labels of the methods to run; all of them if not given.
        listeners: follow all runs, in this order.

    Raises:
        UserError: flwr or an app is missing or cannot be imported, or ``out`` is not empty.
        RunsFailed: a ``ServerApp`` raised an error; the directory is complete and contains the error.
        NotWritten: files could not be written; the run can be resumed.
    """
    require_flwr()
    labels = [each.label for each in scenario.methods]
    for label in methods or ():
        if label not in labels:
            raise UserError(
                f"the scenario '{scenario.name}' has no method labelled '{label}'; {nearest(label, labels)}"
            )
    chosen = [label for label in labels if methods is None or label in methods]
    choices = Choices(methods=tuple(chosen), device="cpu", train=True)
    with RunDirectory(out.absolute(), choices) as directory, neutral_torch():
        return _execute(scenario, directory, listeners)


def resume(path: Path, *, listeners: Sequence[Listener] = (), trust: bool = False) -> Path:
    """Resume an interrupted run of apps; the result is identical byte for byte to that of an uninterrupted run.

    The present app's ``ServerApp`` is executed again from its start, and gets the recorded replies of its clients.

    Args:
        path: the run directory.
        listeners: follow the runs, including rounds that are only repeated.
        trust: execute apps whose folder is in the run directory, which may be somebody else's.

    Raises:
        UserError: there is no interrupted run, an app has changed, or a file is missing.
        DecidedDifferently: the ``ServerApp`` decides differently than before the interruption.
        RunsFailed, NotWritten: as for :func:`run`.
    """
    require_flwr()
    with RunDirectory(path.absolute(), None) as directory, neutral_torch():
        scenario = app_scenario_of(path)
        if scenario is None:
            raise UserError("is no run of a Flower app", file=str(path))
        if not directory.opened:
            raise UserError(
                "nothing to resume: its runs are finished; an app that is changed needs a run in another folder",
                file=str(path),
            )
        for field, app in scenario.apps().items():
            if not trust and Path(app).resolve().is_relative_to(path.resolve()):
                raise UserError(
                    "this app is not executed, since it is part of the run directory; read it, and add --trust to "
                    "execute it",
                    file=app,
                    field=field,
                )
        return _execute(scenario, directory, listeners)


def _execute(scenario: AppScenario, directory: RunDirectory, listeners: Sequence[Listener]) -> Path:
    try:
        return _Runs(scenario, directory, listeners).execute()
    except ListenerError as failure:
        raise failure.error from failure.error.__cause__
    except UserError:
        directory.forget()
        raise
    except OSError as error:
        if not directory.opened:
            raise
        raise NotWritten(directory.path, error) from error


def run_configs(scenario: AppScenario, methods: Sequence[AppMethod]) -> list[dict[str, Any]]:
    """Each method's run configuration; UserError if one does not fit its app. No code of an app is executed."""
    return [read_app(scenario.app_of(method))[1] for method in methods]


def inputs_of(scenario: AppScenario, folder: Path) -> dict[str, Input]:
    """The digests of a run's inputs: the scenario, and the code of each app."""
    found = {SCENARIO: Input(str(folder / names.SCENARIO), digest_of_scenario(resolve(scenario)))}
    return found | {field: Input(app, digest_of_app(app)) for field, app in scenario.apps().items()}


class _Runs:
    def __init__(self, scenario: AppScenario, directory: RunDirectory, listeners: Sequence[Listener]) -> None:
        chosen = directory.choices.methods
        self._scenario, self._directory = scenario, directory
        self._methods = [method for method in scenario.methods if method.label in chosen]
        self._configs = run_configs(scenario, self._methods)
        self._listeners = [marked(listener) for listener in listeners]
        self._fault: PartFault | None = None
        self._costs = self._known_costs()

    def execute(self) -> Path:
        """Run everything that is not finished."""
        directory, scenario = self._directory, self._scenario
        directory.use_software(versions_of(PACKAGES))
        runs = [(method, seed) for seed in scenario.seeds for method in self._methods]
        left = [(method, seed) for method, seed in runs if (method.label, seed) not in directory.finished]
        for listener in self._listeners:
            listener.began([(method.label, seed) for method, seed in left], self._planned_rounds())
        for method, seed in left:
            directory.read_inputs(inputs_of(scenario, directory.path))
            directory.open(scenario)
            for listener in self._listeners:
                listener.run_began(method.label, seed)
            entry, numbers = self._run(method, seed)
            write_costs(self._costs, directory.paths.costs)
            directory.run_finished(method.label, seed, entry, numbers)
            for listener in self._listeners:
                listener.run_ended(entry)
        entries = {
            method.label: [directory.finished[method.label, seed].entry for seed in scenario.seeds]
            for method in self._methods
        }
        write_costs(self._costs, directory.paths.costs)
        write_summary(scenario.name, entries, directory.paths.summary, directory.inputs, directory.software)
        directory.all_finished()
        faults = {run: each.entry.stop.message or "" for run, each in directory.finished.items() if each.entry.faulted}
        if faults:
            raise RunsFailed(directory.path, len(runs), faults, resumable=False) from self._fault
        return directory.path

    def _known_costs(self) -> dict[str, list[StepRow]]:
        """The costs of the finished runs, by label; those of a run that was interrupted are counted again."""
        costs: dict[str, list[StepRow]] = {method.label: [] for method in self._methods}
        finished = self._directory.finished
        if not finished:
            return costs
        known = read_costs(self._directory.paths.costs)
        for (label, _), run in finished.items():
            rows: dict[tuple[int, ...], StepRow] = {(row.alpha, row.batch): row for row in known.get(label, ())}
            costs[label] += [rows[number] for number in run.costs]
        return costs

    def _run(self, method: AppMethod, seed: int) -> tuple[SeedResult, list[tuple[int, int]]]:
        """The result of a run, and (1, number) of each piece of work that it added to the costs."""
        paths = RunPaths(self._directory.path).make(method.label, seed)
        early_end, costs = EarlyEnd(), Costs(before=len(self._costs[method.label]))
        with EventFile(paths.events) as table:
            replies, listeners = Replies(paths.replies), [early_end, table, *self._listeners]
            try:
                outcome = run_app(self._scenario, method, seed, costs=costs, replies=replies, listeners=listeners)
            except UserError as error:  # this app cannot be imported
                if len(set(self._scenario.apps().values())) == 1:
                    raise
                fault = PartFault(method.label, 0, "setup", str(error))
                outcome = unbegun_run(method.label, seed, limits_of(self._scenario), listeners, fault)
        self._fault = self._fault or outcome.fault
        write_rounds(outcome.rows, paths.rounds)
        self._costs[method.label] += [row_of(1, step.batch, step) for step in costs.used]
        entry = summarise(outcome, seed, block_wise=False, why=early_end.why(outcome))
        return entry, [(1, step.batch) for step in costs.used]

    def _planned_rounds(self) -> int:
        """The rounds that the apps' configurations name, for the progress display."""
        rounds = [
            value for config in self._configs for key, value in config.items() if "rounds" in key and type(value) is int
        ]
        return max(rounds, default=1)
