"""Run or resume the apps of a scenario, and write the run directory."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgefl.errors import UserError, nearest
from edgefl.experiment.directory import Choices, RunDirectory
from edgefl.experiment.inputs import SCENARIO, Input, digest_of_scenario, versions_of
from edgefl.experiment.run import Runs
from edgefl.experiment.step_costs import row_of
from edgefl.experiment.summary import EarlyEnd, summarise
from edgefl.flower.app import digest_of_app, read_app, require_flwr
from edgefl.flower.client_work import Costs, Replies
from edgefl.flower.scenario import AppMethod, AppScenario, app_scenario_of
from edgefl.flower.setup import limits_of, run_app
from edgefl.record import RunPaths, names
from edgefl.record.costs import StepKey, StepRow, read_costs, write_costs
from edgefl.record.events import Listener
from edgefl.record.summary import SeedResult
from edgefl.record.tables import event_file, write_rounds
from edgefl.scenario import resolve
from edgefl.simulation.run import unbegun_run
from edgefl.torch_settings import neutral_torch
from edgefl.training.faults import PartFault

PACKAGES = ("flwr", "torch")
"""The packages on which results depend, as far as edgefl knows; an app may need more."""


def run(
    scenario: AppScenario, *, out: Path, methods: Sequence[str] | None = None, listeners: Sequence[Listener] = ()
) -> Path:
    """Run these methods of a scenario (all if not given) with each of its seeds; ``out`` is new or empty.

    Raises:
        RunsFailed: a ``ServerApp`` raised an error; the directory is complete and contains the error.
        NotWritten: files could not be written; the run can be resumed.
    """
    require_flwr()
    labels = [each.label for each in scenario.methods]
    for label in methods or ():
        if label not in labels:
            message = f"the scenario '{scenario.name}' has no method labelled '{label}'; {nearest(label, labels)}"
            raise UserError(message)
    chosen = [label for label in labels if methods is None or label in methods]
    choices = Choices(methods=tuple(chosen), device="cpu", train=True)
    with RunDirectory(out.absolute(), choices) as directory, neutral_torch():
        return _AppRuns(scenario, directory, listeners).execute()


def resume(path: Path, *, listeners: Sequence[Listener] = (), trust: bool = False) -> Path:
    """Resume an interrupted run of apps; the result is identical byte for byte to that of an uninterrupted run.

    The present app's ``ServerApp`` is executed again from its start, and gets the recorded replies of its clients.

    ``trust`` executes apps whose folder is in the run directory. Listeners also follow rounds that are only repeated.

    Raises:
        DecidedDifferently: the ``ServerApp`` decides differently than before the interruption.
    """
    require_flwr()
    with RunDirectory(path.absolute(), None) as directory, neutral_torch():
        scenario = app_scenario_of(path)
        if scenario is None:
            raise UserError("is no run of a Flower app", file=str(path))
        if not directory.opened:
            message = "nothing to resume: its runs are finished; an app that is changed needs a run in another folder"
            raise UserError(message, file=str(path))
        for field, app in scenario.apps().items():
            if not trust and Path(app).resolve().is_relative_to(path.resolve()):
                raise UserError(
                    "this app is not executed, since it is part of the run directory; read it, and add --trust to "
                    "execute it",
                    file=app,
                    field=field,
                )
        return _AppRuns(scenario, directory, listeners).execute()


def run_configs(scenario: AppScenario, methods: Sequence[AppMethod]) -> list[dict[str, Any]]:
    """Each method's run configuration; UserError if one does not fit its app. No code of an app is executed."""
    return [read_app(scenario.app_of(method))[1] for method in methods]


def inputs_of(scenario: AppScenario, folder: Path) -> dict[str, Input]:
    """The digests of a run's inputs: the scenario, and the code of each app."""
    found = {SCENARIO: Input(str(folder / names.SCENARIO), digest_of_scenario(resolve(scenario)))}
    return found | {field: Input(app, digest_of_app(app)) for field, app in scenario.apps().items()}


class _AppRuns(Runs):
    resumable = False

    def __init__(self, scenario: AppScenario, directory: RunDirectory, listeners: Sequence[Listener]) -> None:
        self._apps = scenario
        self._methods = {each.label: each for each in scenario.methods if each.label in directory.choices.methods}
        configs = run_configs(scenario, list(self._methods.values()))
        rounds = [value for each in configs for key, value in each.items() if "rounds" in key and type(value) is int]
        most = max(rounds, default=1)  # for the progress display
        super().__init__(directory, listeners, name=scenario.name, seeds=scenario.seeds, rounds=most)
        self._costs = self._known_costs()
        directory.use_software(versions_of(PACKAGES))

    def run_seed(self, seed: int, labels: Sequence[str]) -> None:
        for label in labels:
            self.directory.read_inputs(inputs_of(self._apps, self.directory.path))
            self.directory.open(self._apps)
            self.one(label, seed, partial(self._run, self._methods[label], seed))

    def costs(self) -> dict[str, list[StepRow]]:
        return self._costs

    def _known_costs(self) -> dict[str, list[StepRow]]:
        """The costs of the finished runs, by label; those of a run that was interrupted are counted again."""
        costs: dict[str, list[StepRow]] = {method.label: [] for method in self._methods.values()}
        finished = self.directory.finished
        if not finished:
            return costs
        known = read_costs(self.directory.paths.costs)
        for (label, _), run in finished.items():
            rows = {row.key: row for row in known.get(label, ())}
            costs[label] += [rows[key] for key in run.costs]
        return costs

    def _run(self, method: AppMethod, seed: int) -> tuple[SeedResult, list[StepKey]]:
        """The result of a run, and the key of each piece of work that it added to the costs."""
        paths = RunPaths(self.directory.path).make(method.label, seed)
        early_end, costs = EarlyEnd(), Costs(before=len(self._costs[method.label]))
        with event_file(paths.events) as table:
            replies, listeners = Replies(paths.replies), [early_end, table, *self.listeners]
            try:
                outcome = run_app(self._apps, method, seed, costs=costs, replies=replies, listeners=listeners)
            except UserError as error:  # this app cannot be imported
                if len(set(self._apps.apps().values())) == 1:
                    raise
                fault = PartFault(method.label, 0, "setup", str(error))
                outcome = unbegun_run(method.label, seed, limits_of(self._apps), listeners, fault)
        self.fault = self.fault or outcome.fault
        write_rounds(outcome.rows, paths.rounds)
        rows = [row_of((1, step.batch, 0, "cpu"), step) for step in costs.used]
        self._costs[method.label] += rows
        entry = summarise(outcome, seed, block_wise=False, why=early_end.why(outcome))
        write_costs(self._costs, self.directory.paths.costs)
        return entry, [row.key for row in rows]
