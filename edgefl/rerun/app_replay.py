"""``edgefl replay`` of a Flower app's run: its recorded calls and answers in another world, without its code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgefl.errors import UserError, nearest
from edgefl.experiment.directory import read_run_summary
from edgefl.experiment.early_end import EarlyEnd
from edgefl.experiment.inputs import SCENARIO, Input, check_inputs, digest_of_scenario
from edgefl.experiment.recording import DAMAGED
from edgefl.experiment.step_costs import recorded_cost, row_of
from edgefl.experiment.summary import summarise
from edgefl.files import write_file, writing_folder
from edgefl.flower.replay import DiffersError, replay_app
from edgefl.flower.scenario import AppScenario, changed_app_scenario
from edgefl.flower.trace import Trace, trace_of
from edgefl.flower.works import Costs
from edgefl.record import RunPaths
from edgefl.record.costs import StepRow, read_costs, write_costs
from edgefl.record.listener import Listener
from edgefl.record.summary import SeedResult, Summary, write_summary
from edgefl.record.tables import EventFile, read_events, write_rounds
from edgefl.rerun.changeable import check_changeable
from edgefl.rerun.execution_again import Comparison, EndsHereError, summed_up
from edgefl.scenario import dump_yaml, resolve
from edgefl.scenario.overrides import Overrides
from edgefl.simulation.laws import Record
from edgefl.simulation.run import Outcome
from edgefl.torch_settings import neutral_torch
from edgefl.yaml_file import read_yaml


class _Runs:
    """The runs of an app in a directory.

    Args:
        run: the directory.
        labels: its methods.
    """

    def __init__(self, run: Path, labels: Sequence[str]) -> None:
        known = read_costs(RunPaths(run).costs)
        self._run = run
        self._known = {label: {row.batch: recorded_cost(row) for row in known.get(label, ())} for label in labels}

    def trace(self, label: str, seed: int) -> Trace | None:
        """The trace of a run; None if it has none.

        Raises:
            UserError: the log is damaged.
        """
        file = RunPaths(self._run).of(label, seed).events
        try:
            return trace_of(list(read_events(file)))
        except DAMAGED as error:
            raise UserError(f"the log cannot be read ({type(error).__name__}: {error})", file=str(file)) from None

    def replayed(
        self,
        scenario: AppScenario,
        label: str,
        seed: int,
        *,
        trace: Trace,
        costs: Costs,
        listeners: Sequence[Listener],
    ) -> Outcome:
        """The outcome of a run in a scenario's world.

        Raises:
            DiffersError: the app would get other replies there.
            UserError: the log is damaged.
        """
        known = self._known[label]
        try:
            outcome = replay_app(scenario, label, seed, trace=trace, known=known, costs=costs, listeners=listeners)
        except DiffersError as error:
            raise DiffersError(error.what, field=f"{label}, seed {seed}") from None
        except DAMAGED as error:
            raise self._damaged(label, seed, f"{type(error).__name__}: {error}") from None
        if outcome.fault is not None:
            raise self._damaged(label, seed, str(outcome.fault))
        return outcome

    def _damaged(self, label: str, seed: int, why: str) -> UserError:
        return UserError(f"the calls are damaged ({why})", file=str(RunPaths(self._run).of(label, seed).events))


def can_replay_app(run: Path, summary: Summary) -> bool:
    """Whether this version of edgefl wrote the run of an app, and its logs have the calls of the app."""
    entries = [(label, entry) for label, found in summary.methods.items() for entry in found]
    if not summary.of_this_version:
        return False
    try:
        runs = _Runs(run, list(summary.methods))
        return all(entry.faulted or runs.trace(label, entry.seed) is not None for label, entry in entries)
    except UserError:
        return False  # the other checks name the damage


class AppReplay:
    """A finished run of an app, ready to be replayed on other networks.

    Args:
        run: its directory.
        scenario: its scenario.
        methods: labels; all of the run's if not given.

    Raises:
        UserError: the run is not finished, a fault ended it, its log has no calls, or a file is damaged.
    """

    @neutral_torch()
    def __init__(self, run: Path, scenario: AppScenario, methods: Sequence[str] | None = None) -> None:
        summary = read_run_summary(run)
        for label in methods or ():
            if label not in summary.methods:
                raise UserError(f"the run has no method '{label}'; {nearest(label, summary.methods)}", file=str(run))
        labels = [label for label in summary.methods if not methods or label in methods]
        file = RunPaths(run).scenario
        check_inputs(summary.inputs, {SCENARIO: Input(str(file), digest_of_scenario(read_yaml(file)))})
        self._run, self._summary, self._scenario, self._runs = run, summary, scenario, _Runs(run, labels)
        self._traces = {
            (label, entry.seed): self._trace(label, entry)
            for index in range(len(scenario.seeds))
            for label in labels
            for entry in summary.methods[label][index : index + 1]
        }

    @neutral_torch()
    def on(self, changes: Overrides, out: Path) -> Path:
        """Replay the run with changes to its scenario, and write a run directory like that of a full run.

        Args:
            changes: values by path, inside one of the sections that a replay may change.
            out: the run directory; must not exist.

        Raises:
            UserError: a change is invalid, or the app would get other replies. Nothing is written.
        """
        check_changeable(changes)
        scenario = changed_app_scenario(self._scenario, changes)
        if os.path.lexists(out):
            raise UserError("expected a folder that does not exist yet", file=str(out))
        try:
            with writing_folder(out) as folder:
                self._write(scenario, folder)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", file=str(out)) from None
        return out

    def _write(self, scenario: AppScenario, folder: Path) -> None:
        paths = RunPaths(folder)
        entries: dict[str, list[SeedResult]] = {label: [] for label, _ in self._traces}
        rows: dict[str, list[StepRow]] = {label: [] for label in entries}
        for (label, seed), trace in self._traces.items():
            place, early_end, costs = paths.make(label, seed), EarlyEnd(), Costs(before=len(rows[label]))
            with EventFile(place.events) as table:
                listeners = [early_end, table]
                outcome = self._runs.replayed(scenario, label, seed, trace=trace, costs=costs, listeners=listeners)
            write_rounds(outcome.rows, place.rounds)
            rows[label] += [row_of(1, cost.batch, cost) for cost in costs.used]
            entries[label].append(summarise(outcome, seed, block_wise=False, why=early_end.why(outcome)))
        data = resolve(scenario)
        write_file(paths.scenario, dump_yaml(data))
        write_costs(rows, paths.costs)
        inputs = {**self._summary.inputs, SCENARIO: digest_of_scenario(data)}
        write_summary(scenario.name, entries, paths.summary, inputs, self._summary.software)

    def _trace(self, label: str, entry: SeedResult) -> Trace:
        trace = None if entry.faulted else self._runs.trace(label, entry.seed)
        if trace is None:
            why = (
                "a fault ended it, so there is nothing to replay"
                if entry.faulted
                else "its log has no calls of the app, because an older version of edgefl wrote it: simulate it again"
            )
            raise UserError(why, file=str(self._run), field=f"{label}, seed {entry.seed}")
        return trace


class AppAgain:
    """Simulates the runs of an app's directory again, one by one.

    Args:
        run: the directory.
        scenario: its scenario.
        summary: its summary.
    """

    def __init__(self, run: Path, scenario: AppScenario, summary: Summary) -> None:
        self._scenario, self._runs = scenario, _Runs(run, list(summary.methods))
        self._before = dict.fromkeys(summary.methods, 0)

    def differences(self, record: Record, label: str) -> Iterator[str]:
        """The differences between a run and what follows from its scenario and its calls; of the rows the first one.

        Args:
            record: the data of its files.
            label: the method.
        """
        early_end, comparison, outcome = EarlyEnd(), Comparison(record.events), None
        costs = Costs(before=self._before[label])
        try:
            trace = self._runs.trace(label, record.summary.seed)
            if trace is None:  # a fault ended the run before the app's first call
                return
            listeners = [early_end, comparison]
            outcome = self._runs.replayed(
                self._scenario, label, record.summary.seed, trace=trace, costs=costs, listeners=listeners
            )
        except EndsHereError:
            pass
        except UserError as error:
            if not record.summary.faulted:
                yield f"the run cannot be simulated again: {error}"
        self._before[label] += len(costs.used)
        if comparison.difference is not None:
            yield comparison.difference
        elif outcome is not None and not comparison.whole:
            yield "the log has more rows than follow from the scenario"
        elif outcome is not None:
            entry = summarise(outcome, record.summary.seed, block_wise=False, why=early_end.why(outcome))
            yield from summed_up(record, outcome, entry)
