"""Check the run directory of an app: unchanged inputs, and logs that obey the rules of the model.

The app is not executed. If its folder exists, its digest is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgefl.errors import UserError
from edgefl.experiment.inputs import SCENARIO, digest_of_scenario
from edgefl.fleet import assign
from edgefl.flower.app import digest_of_app
from edgefl.flower.scenario import AppScenario
from edgefl.record import RunPaths
from edgefl.record.costs import read_costs
from edgefl.record.events import EVENTS
from edgefl.record.metric import ACCURACY
from edgefl.record.rounds import ROUNDS
from edgefl.record.summary import SeedResult, Summary
from edgefl.record.tables import check_schema, read_events, read_parquet
from edgefl.simulation.laws import Record, violations
from edgefl.yaml_file import read_yaml


def verify_app(run: Path, scenario: AppScenario, summary: Summary) -> list[str]:
    """The differences between a run directory and what its scenario allows, as sentences; none if it is correct."""
    found = list(_changed(run, scenario, summary))
    if found:
        return found
    try:
        read_costs(RunPaths(run).costs)
    except UserError as error:
        return [f"costs.json cannot be read: {error.message}"]
    for label, entries in summary.methods.items():
        for entry in entries:
            differences = _run(run, scenario, label=label, entry=entry)
            found += [f"{label}, seed {entry.seed}: {text}" for text in differences]
    return found


def _changed(run: Path, scenario: AppScenario, summary: Summary) -> Iterator[str]:
    file, known = RunPaths(run).scenario, summary.inputs
    if known.get(SCENARIO) != digest_of_scenario(read_yaml(file)):
        yield f"{file} is not the scenario that the run was made from"
        return
    if summary.scenario != scenario.name:
        yield f"scenario: summary.json has {summary.scenario!r}, scenario.yaml {scenario.name!r}"
    labels = [method.label for method in scenario.methods]
    for label, entries in summary.methods.items():
        if label not in labels:
            yield f"methods: the scenario has no method '{label}'"
        if [entry.seed for entry in entries] != list(scenario.seeds):
            yield f"{label}: summary.json has other seeds than the scenario, {list(scenario.seeds)}"
    for label in summary.chosen:
        if label not in summary.methods:
            yield f"methods: '{label}' was chosen, but has no results in summary.json"
    for field, app in scenario.apps().items():
        if field not in known:
            yield f"inputs: summary.json has no digest of {field}"
        elif Path(app).is_dir() and digest_of_app(app) != known[field]:
            yield f"{app}: {field}: is not the app that the run executed"


def _run(
    run: Path,
    scenario: AppScenario,
    *,
    label: str,
    entry: SeedResult,
) -> Iterator[str]:
    paths = RunPaths(run).of(label, entry.seed)
    events, rounds = paths.events, paths.rounds  # a link or a pipe is an error of the whole directory
    try:
        check_schema(events, EVENTS)
        check_schema(rounds, ROUNDS)
        record = Record(
            events=list(read_events(events)),
            rounds=read_parquet(rounds, ROUNDS).to_pydict(),
            summary=entry,
            fleet=assign(scenario.fleet, scenario.data.clients, entry.seed),
        )
    except UserError as error:
        yield f"a file cannot be read: {error}"
        return
    if entry.metric.metric != ACCURACY.named:
        yield f"metric: summary.json has {entry.metric.name}, and the metric of an app is the accuracy"
        return
    try:
        yield from violations(record)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        yield f"the files are damaged ({type(error).__name__}: {error})"
