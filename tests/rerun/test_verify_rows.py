"""No cell of a log, of the rounds or of the summary can be another without being noticed."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from edgefl.experiment import run
from edgefl.experiment.directory import read_run_summary
from edgefl.record import RunPaths
from edgefl.record.costs import read_costs
from edgefl.record.events import Event
from edgefl.record.summary import SeedResult
from edgefl.rerun.execution_again import ExecutionAgain
from edgefl.rerun.verify import _Verification
from edgefl.scenario.loading import check
from edgefl.simulation.invariants import violations
from edgefl.simulation.invariants.record import at

from ..small_runs import SMALL

TRAINED = {("feedback", "detail"), ("evaluation", "detail"), ("model", "detail")}
"""Cells that only training again could tell; the figures made of them are compared."""


def other(value):
    if isinstance(value, dict):
        return {**value, sorted(value)[0]: other(value[sorted(value)[0]])}
    if isinstance(value, list):
        return [*value, 1]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    return 0.5 if value is None else value + 1


@pytest.fixture(scope="module", params=["synchronous", "asynchronous"])
def executed(request, tmp_path_factory):
    """A run as its files say, and a function that compares a record with a second execution."""
    data = copy.deepcopy(SMALL)
    data["training"]["rounds"] = 2
    if request.param == "asynchronous":
        data |= {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 3}}
    else:
        data |= {"protocol": {"deadline": "100 ms"}, "methods": [{"method": "fedbr", "overlap": False}]}
    data |= {"targets": [0.2], "budgets": {"bytes": "100 kB"}, "stop": "rounds"}
    scenario = check(data)
    label = scenario.methods[0].label
    folder = run(scenario, out=tmp_path_factory.mktemp("rows") / "run")
    costs = read_costs(folder / "costs.json")
    summary = read_run_summary(folder)
    verification = _Verification(folder, scenario, summary, costs)
    record = verification._record(RunPaths(folder).of(label, 0), label, summary.methods[label][0])
    again = ExecutionAgain(scenario, costs)
    return record, lambda record: list(again.differences(record, label))


@pytest.fixture(scope="module")
def finished(executed):
    """A run as its files say, and a function that tells what is wrong with a record."""
    record, differences = executed
    return record, lambda record: list(violations(record)) or differences(record)


def test_a_sound_record_passes(finished):
    record, wrong = finished
    assert wrong(record) == []


def test_no_cell_of_the_log_can_be_another(finished):
    record, wrong = finished
    unnoticed = set()
    for kind in {event.kind for event in record.events}:
        place = next(index for index, event in enumerate(record.events) if event.kind == kind)
        event = record.events[place]
        for name in Event._fields:
            value = getattr(event, name)
            changed = json.dumps(other(json.loads(value))) if name == "detail" and value else other(value)
            events = [*record.events[:place], event._replace(**{name: changed}), *record.events[place + 1 :]]
            if not wrong(replace(record, events=events)):
                unnoticed.add((kind, name))
    assert unnoticed <= TRAINED


def test_the_difference_that_is_named_is_the_first_one(executed):
    record, differences = executed
    for place in [place for place, event in enumerate(record.events) if event.joules][::3]:
        events = [
            event._replace(joules=2 * event.joules) if k >= place else event for k, event in enumerate(record.events)
        ]
        (text,) = differences(replace(record, events=events))
        assert text.startswith(f"{at(events[place])}: joules is {events[place].joules}, but")


def test_no_row_of_the_log_can_be_missing_or_stand_twice(finished):
    record, wrong = finished
    for kind in {event.kind for event in record.events}:
        place = next(index for index, event in enumerate(record.events) if event.kind == kind)
        assert wrong(replace(record, events=[*record.events[:place], *record.events[place + 1 :]])), kind
        assert wrong(replace(record, events=[*record.events[: place + 1], *record.events[place:]])), kind


def test_no_cell_of_the_rounds_can_be_another(finished):
    record, wrong = finished
    for name, column in record.rounds.items():
        assert wrong(replace(record, rounds={**record.rounds, name: [other(column[0]), *column[1:]]})), name


def places(data, path=()):
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        yield path
        return
    for key, value in items:
        yield from places(value, (*path, key))


def test_no_figure_of_the_summary_can_be_another(finished):
    record, wrong = finished
    for *way, last in places(record.summary.written()):
        summary = record.summary.written()
        part = summary
        for key in way:
            part = part[key]
        part[last] = other(part[last])
        try:
            assert wrong(replace(record, summary=SeedResult.model_validate(summary))), (*way, last)
        except (ValidationError, KeyError, IndexError, TypeError):
            continue  # `verify` says that the files are damaged
