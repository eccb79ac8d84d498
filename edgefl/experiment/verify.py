"""``edgefl verify``: a run directory against the laws of the world."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgefl.errors import UserError
from edgefl.experiment.directory import is_interrupted
from edgefl.experiment.inputs import SCENARIO, Inputs, digest_of_scenario, recorded_inputs
from edgefl.experiment.step_costs import read_costs
from edgefl.experiment.summary import SCHEMA
from edgefl.experiment.tables import EVENTS, ROUNDS, read_table
from edgefl.experiment.wiring import compute_seconds
from edgefl.fleet import assign
from edgefl.network import build_topology
from edgefl.scenario import Scenario, load_scenario
from edgefl.simulation.invariants import CostEntry, Record, violations
from edgefl.simulation.log import Event
from edgefl.yaml_file import read_yaml


def verify(run: Path) -> list[str]:
    """Every broken law of every run in a run directory, as sentences; none where the logs can be believed.

    Raises:
        UserError: the folder holds no finished run.
    """
    summary = read_run_summary(run)
    scenario = load_scenario(run / "scenario.yaml")
    changed = list(_changed_inputs(run, scenario, summary))
    if changed:
        return changed
    try:
        costs = read_costs(run / "costs.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"costs.json cannot be read: {error}"]
    found = []
    for label, entries in summary["methods"].items():
        for entry in entries:
            place = f"{label}, seed {entry['seed']}"
            found += [f"{place}: {text}" for text in _check(run, scenario, costs.get(label, {}), label, entry)]
    if not found:
        from edgefl.experiment.sensitivity.checking import check_sensitivity  # it reads runs, as this module does

        found += check_sensitivity(run, summary)
    return found


def _changed_inputs(run: Path, scenario: Scenario, summary: dict[str, Any]) -> Iterator[str]:
    """What the run read that is not what lies here now; the log cannot be held to it then."""
    known = recorded_inputs(summary, run / "summary.json")
    file = run / "scenario.yaml"
    if known.get(SCENARIO, now := digest_of_scenario(read_yaml(file))) != now:
        yield f"{file} is not the scenario that the run was made from"
        return
    try:
        found = Inputs(scenario, run).now(trains=False)
    except UserError as error:
        yield f"what the run read is not here: {error}"
        return
    for field, each in found.items():
        if field != SCENARIO and known.get(field, each.digest) != each.digest:
            yield f"{each.file}: {field}: is not the file that the run read"


def read_run_summary(run: Path) -> dict[str, Any]:
    """The summary of a finished run.

    Raises:
        UserError: the folder holds none, or one of another schema.
    """
    path = run / "summary.json"
    if not path.is_file():
        hint = f"; it is unfinished: edgefl simulate --resume {run}" if is_interrupted(run) else ""
        raise UserError(f"expected the folder of a finished run, found no summary.json{hint}", file=str(run))
    try:
        summary: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", file=str(path)) from None
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON (line {error.lineno}: {error.msg})", file=str(path)) from None
    schema = summary.get("schema") if isinstance(summary, dict) else None
    if schema != SCHEMA:
        raise UserError(f"expected schema {SCHEMA}, found {schema!r}", file=str(path), field="schema")
    try:
        for entries in summary["methods"].values():
            for entry in entries:
                int(entry["seed"])
    except (AttributeError, KeyError, TypeError, ValueError):
        message = "expected a list of runs with their seeds for each method"
        raise UserError(message, file=str(path), field="methods") from None
    return dict(summary)


def _check(
    run: Path, scenario: Scenario, costs: dict[tuple[int, int], CostEntry], label: str, entry: dict[str, Any]
) -> Iterator[str]:
    folder = run / label / f"seed-{entry['seed']}"
    try:
        events = read_table(folder / "events.parquet", EVENTS)
        rounds = read_table(folder / "rounds.parquet", ROUNDS)
    except ValueError as error:
        yield f"a table cannot be read: {error}"
        return
    fleet = assign(scenario.fleet, scenario.data.clients, int(entry["seed"]))
    network = scenario.network
    links = [str(name) for name in fleet.link_names()]
    record = Record(
        events=[Event(*row) for row in zip(*(events[name] for name in EVENTS.names), strict=True)],
        rounds=rounds,
        summary=entry,
        fleet=fleet,
        costs=costs,
        topology=build_topology(network.topology, network.links, links),
        transport=network.transport.build(),
        protocol=scenario.protocol,
        seconds=compute_seconds(scenario, scenario.method(label), int(entry["seed"])),
    )
    try:
        yield from violations(record)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        yield f"the files are damaged ({type(error).__name__}: {error})"
