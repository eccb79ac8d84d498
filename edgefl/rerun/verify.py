"""``edgefl verify``: check a run directory against its scenario and the rules of the model."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import UserError
from edgefl.experiment.directory import read_run_summary
from edgefl.experiment.inputs import DATA, SCENARIO, Inputs, digest_of_scenario
from edgefl.experiment.software import in_words, software_of
from edgefl.fleet import assign
from edgefl.flower.scenario import app_scenario_of
from edgefl.flower.verification import verify_app
from edgefl.input_file import code_files
from edgefl.record import RunPaths, SeedPaths
from edgefl.record.costs import read_costs
from edgefl.record.emulation import read_emulation
from edgefl.record.events import EVENTS
from edgefl.record.rounds import ROUNDS
from edgefl.record.summary import SeedResult, Summary
from edgefl.record.tables import check_schema, read_events, read_parquet
from edgefl.rerun.execution_again import ExecutionAgain, is_trained
from edgefl.scenario import Scenario, load_scenario
from edgefl.simulation.laws import Record, violations
from edgefl.torch_settings import neutral_torch
from edgefl.yaml_file import read_yaml


def verify(run: Path) -> list[str]:
    """The differences between a run directory and the result of its scenario, as sentences; none if it is correct.

    Raises:
        UserError: the folder contains no finished run.
    """
    summary = read_run_summary(run)
    if (app := app_scenario_of(run)) is not None:
        return verify_app(run, app, summary)
    scenario = load_scenario(RunPaths(run).scenario, run_code=False)
    return list(_changed_inputs(run, scenario, summary)) or differences(run, summary, scenario)


@neutral_torch()
def differences(run: Path, summary: Summary, scenario: Scenario) -> list[str]:
    """The differences between the runs of a directory and the result of a scenario, as sentences.

    The logs must obey the laws of conservation. If this version of edgefl wrote them, the simulation is also
    executed again with the recorded training results, and must give the same rows, rounds and figures. The seconds of
    an emulated run were measured, so it is not executed again.

    Args:
        run: the run directory.
        summary: the content of its ``summary.json``.
        scenario: the scenario of the run directory.
    """
    file = RunPaths(run).costs  # a link or a pipe is an error of the whole directory
    try:
        costs = read_costs(file)
    except UserError as error:
        return [f"costs.json cannot be read: {error.message}"]
    verification = _Verification(run, scenario, summary)
    found = [*_other_runs(scenario, summary), *_left_out(run, scenario, summary, costs)]
    if found:
        return found
    again = ExecutionAgain(scenario, costs) if can_execute_again(run, summary) else None
    for label, entries in summary.methods.items():
        for entry in entries:
            found += [f"{label}, seed {entry.seed}: {text}" for text in verification.check(label, entry, again)]
    return found


def is_executed_again(run: Path, summary: Summary) -> bool:
    """Whether the simulation is executed again, because everything in its logs follows from the scenario."""
    return can_execute_again(run, summary) and not is_emulated(run, summary)


def can_execute_again(run: Path, summary: Summary) -> bool:
    """Whether the scenario can be executed here: this version wrote the run, and no Python file would be executed."""
    return summary.of_this_version and not code_files(load_scenario(RunPaths(run).scenario, run_code=False))


def is_emulated(run: Path, summary: Summary) -> bool:
    """Whether the seconds of the runs were measured, not computed."""
    return any(
        RunPaths(run).of(label, entry.seed).emulation.exists()
        for label, entries in summary.methods.items()
        for entry in entries
    )


def other_software(run: Path, summary: Summary) -> str | None:
    """The packages that a run was made with, as text, if other versions are installed here."""
    here = software_of(load_scenario(RunPaths(run).scenario, run_code=False))
    return in_words(summary.software) if summary.software and summary.software != here else None


def _other_runs(scenario: Scenario, summary: Summary) -> Iterator[str]:
    """Differences between the runs of the summary and those of the scenario."""
    if summary.scenario != scenario.name:
        yield f"scenario: summary.json has {summary.scenario!r}, scenario.yaml {scenario.name!r}"
    known = {method.label for method in scenario.methods}
    for label, entries in summary.methods.items():
        seeds = [entry.seed for entry in entries]
        if label not in known:
            yield f"methods: the scenario has no method '{label}'"
        if seeds != list(scenario.seeds):
            yield f"{label}: summary.json has the seeds {seeds}, the scenario {list(scenario.seeds)}"


def _left_out(run: Path, scenario: Scenario, summary: Summary, costs: Collection[str]) -> Iterator[str]:
    """Methods that were run but have no results, for example because they were removed from the summary."""
    labels = [method.label for method in scenario.methods]
    run_here = {label: "a folder" for label in labels if (run / label).is_dir()}
    run_here |= dict.fromkeys(costs, "step costs in costs.json")
    run_here |= dict.fromkeys(summary.chosen, "a place among the chosen methods")
    for label, what in run_here.items():
        if label not in summary.methods:
            yield f"methods: '{label}' has {what}, but no results in summary.json"
    if list(summary.chosen) != list(summary.methods):
        yield f"chosen: summary.json has {list(summary.chosen)}, but results of {list(summary.methods)}"


def _changed_inputs(run: Path, scenario: Scenario, summary: Summary) -> Iterator[str]:
    """Inputs that changed since the run; then the log cannot be compared with the scenario."""
    known, file = summary.inputs, RunPaths(run).scenario
    copies = {field: RunPaths(run).code(field) for field in code_files(scenario)}
    now = digest_of_scenario(read_yaml(file))
    if known.get(SCENARIO) != now:
        yield f"{file} is not the scenario that the run was made from"
        return
    try:
        found = Inputs(scenario, run).now(trains=False, copies=copies)
    except UserError as error:
        yield f"an input of the run is missing: {error}"
        return
    for field, each in found.items():
        if field not in known:
            yield f"inputs: summary.json has no digest of {field}"
        elif known[field] != each.digest:
            yield f"{each.file}: {field}: is not the file that the run read"
    for field in sorted(known.keys() - found.keys() - {DATA}):
        yield f"inputs: summary.json has a digest of {field}, which the scenario does not read"


@dataclass(frozen=True)
class _Verification:
    """What the runs of a directory are compared with.

    Attributes:
        run: the directory.
        scenario: the scenario of the runs.
        summary: their summary.
    """

    run: Path
    scenario: Scenario
    summary: Summary

    def check(self, label: str, entry: SeedResult, again: ExecutionAgain | None) -> Iterator[str]:
        """The errors of one run, as sentences."""
        paths = RunPaths(self.run).of(label, entry.seed)
        events, rounds = paths.events, paths.rounds  # a link or a pipe is an error of the whole directory
        try:
            record = self._record(paths, entry)
            if record.emulation is None and is_emulated(self.run, self.summary):
                yield f"{paths.emulation.name} is missing, but other runs of the directory were emulated"
                return
            check_schema(events, EVENTS)
            check_schema(rounds, ROUNDS)
        except UserError as error:
            yield f"a file cannot be read: {error}"
            return
        measured = self.scenario.task.measured
        if entry.metric.metric != measured.named:
            yield f"metric: summary.json has {entry.metric.name}, and the scenario's task has {measured.name}"
            return
        try:
            broken = list(violations(record))
            if again is not None and not broken:
                yield from self._missing(record, paths)
                if record.emulation is None:
                    yield from again.differences(record, label)
                yield from again.final_model(record, label, paths.final_model)
            yield from broken
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            yield f"the files are damaged ({type(error).__name__}: {error})"

    def _missing(self, record: Record, paths: SeedPaths) -> Iterator[str]:
        """Files and digests of a run with training that are missing."""
        if not is_trained(record):
            return
        if DATA not in self.summary.inputs:
            yield "inputs: summary.json has no digest of the data"
        for path in paths.of_finished(record.summary, self.scenario.keep_models):
            if not path.is_file():
                yield f"{path.name} is missing"

    def _record(self, paths: SeedPaths, entry: SeedResult) -> Record:
        return Record(
            events=list(read_events(paths.events)),
            rounds=read_parquet(paths.rounds, ROUNDS).to_pydict(),
            summary=entry,
            fleet=assign(self.scenario.fleet, self.scenario.data.clients, entry.seed),
            emulation=read_emulation(paths.emulation),
        )
