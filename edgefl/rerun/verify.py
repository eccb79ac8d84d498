"""``edgefl verify``: check a run directory against its scenario and the rules of the model.

The laws in :mod:`edgefl.simulation.laws` check whether a log is consistent, and :mod:`execution_again` whether it
is the log of this scenario.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgefl.errors import UserError
from edgefl.experiment.directory import read_run_summary
from edgefl.experiment.inputs import SCENARIO, Input, Inputs, digest_of_scenario, in_words, software_of
from edgefl.fleet import assign
from edgefl.flower.app import digest_of_app
from edgefl.flower.scenario import AppScenario, app_scenario_of
from edgefl.input_file import code_files
from edgefl.record import RunPaths, SeedPaths
from edgefl.record.costs import read_costs
from edgefl.record.emulation import read_emulation
from edgefl.record.rounds import ROUNDS
from edgefl.record.summary import SeedResult, Summary
from edgefl.record.tables import read_events, read_parquet
from edgefl.rerun.execution_again import ExecutionAgain, is_trained
from edgefl.scenario import Scenario, load_scenario
from edgefl.simulation.laws import Record, violations
from edgefl.torch_settings import neutral_torch
from edgefl.yaml_file import read_yaml


@neutral_torch()
def verify(run: Path) -> list[str]:
    """The differences between a run directory and the result of its scenario, as sentences; none if it is correct.

    The logs must obey the laws of conservation. If this version of edgefl wrote them, the simulation is also
    executed again with the recorded training results, and must give the same rows, rounds and figures. The seconds of
    an emulated run were measured, so it is not executed again; nor is a Flower app.

    Raises:
        UserError: the folder contains no finished run.
    """
    summary, app = read_run_summary(run), app_scenario_of(run)
    scenario = load_scenario(RunPaths(run).scenario, run_code=False) if app is None else app
    if changed := list(_changed_inputs(run, scenario, summary)):
        return changed
    try:
        costs = read_costs(RunPaths(run).costs)
    except UserError as error:
        return [f"costs.json cannot be read: {error.message}"]
    again = None
    if isinstance(scenario, Scenario) and can_execute_again(run, summary):
        again = ExecutionAgain(scenario, costs)
    found = []
    for label, entries in summary.methods.items():
        for entry in entries:
            paths = RunPaths(run).of(label, entry.seed)
            broken = _broken(paths, scenario, label, entry, again)
            found += [f"{label}, seed {entry.seed}: {text}" for text in broken]
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


def _changed_inputs(run: Path, scenario: Scenario | AppScenario, summary: Summary) -> Iterator[str]:
    """Inputs that changed since the run; then the log cannot be compared with the scenario."""
    known, file = summary.inputs, RunPaths(run).scenario
    if known.get(SCENARIO) != digest_of_scenario(read_yaml(file)):
        yield f"{file} is not the scenario that the run was made from"
        return
    try:
        if isinstance(scenario, AppScenario):
            folders = {field: app for field, app in scenario.apps().items() if Path(app).is_dir()}
            found = {field: Input(app, digest_of_app(app)) for field, app in folders.items()}
        else:
            copies = {field: RunPaths(run).code(field) for field in code_files(scenario)}
            found = Inputs(scenario, run).now(trains=False, copies=copies)
    except UserError as error:
        yield f"an input of the run is missing: {error}"
        return
    for field, each in found.items():
        if known.get(field) != each.digest:
            yield f"{each.file}: {field}: is not the file that the run read"


def _broken(
    paths: SeedPaths, scenario: Scenario | AppScenario, label: str, entry: SeedResult, again: ExecutionAgain | None
) -> Iterator[str]:
    """The errors of one run, as sentences."""
    try:
        record = record_of(paths, scenario, entry)
    except UserError as error:
        yield f"a file cannot be read: {error}"
        return
    broken = list(violations(record))
    yield from broken
    if again is None or broken or not isinstance(scenario, Scenario):
        return
    for path in paths.of_finished(entry, scenario.keep_models) if is_trained(record) else ():
        if not path.is_file():
            yield f"{path.name} is missing"
    if record.emulation is None:
        yield from again.differences(record, label)
    yield from again.final_model(record, label, paths.final_model)


def record_of(paths: SeedPaths, scenario: Scenario | AppScenario, entry: SeedResult) -> Record:
    """The files of one run, as the laws check them."""
    return Record(
        events=list(read_events(paths.events)),
        rounds=read_parquet(paths.rounds, ROUNDS).to_pydict(),
        summary=entry,
        fleet=assign(scenario.fleet, scenario.data.clients, entry.seed),
        emulation=read_emulation(paths.emulation),
    )
