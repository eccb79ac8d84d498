"""A log that gains or loses a second, a byte, a joule, a job or a model is found by the laws of conservation."""

import json
from dataclasses import replace

import numpy as np
import pytest

from edgefl.fleet.battery import Battery
from edgefl.rerun.laws import violations
from edgefl.simulation.setup import RoundEvaluation

from ..simulation.conftest import device, run  # noqa: F401  (a fixture)


@pytest.fixture
def record(run):  # noqa: F811
    """A run with prefetches and a client that misses the deadline of each round."""
    entry = {"method": "fedadc", "overlap": True}
    return run(entry, rates=[8e6, 8e6, 1e6], rounds=3, protocol={"deadline": 12.0}).record


def changed(**columns):
    return lambda event: [event._replace(**columns)]


@pytest.mark.parametrize(
    ("kind", "change", "found"),
    [
        ("compute_end", changed(time=0.0), "time goes back"),
        ("stop", changed(item="target"), "summary.json has the stop reason rounds"),
        ("round_end", changed(value=1.0), "the round lasted"),
        ("round_start", lambda event: [], "aggregation of round 1 during round 0"),
        ("compute_start", lambda event: [event, event], "the client was busy since the compute_start"),
        ("compute_end", changed(seconds=9.0), "not 9 s"),
        ("transfer_end", lambda event: [], "neither ends nor is dropped"),
        ("transfer_end", lambda event: [event, event], "ends without a start"),
        ("transfer_end", changed(bytes=7), "delivered 7 of"),
        ("transfer_end", changed(joules=0.5), "drew 0.5 J, the profile gives"),
        ("idle", changed(joules=0.5), "drew 0.5 J, the profile gives"),
        ("compute_end", changed(flops=1.0), "flops: summary.json has"),
        ("lost", changed(bytes=7), "not 7"),
        ("lost", lambda event: [event, event], "was already late"),
        ("aggregation", lambda event: [event, event], "was already aggregated"),
        ("evaluation", changed(value=0.9), "row 1: metric is 0.1, the log gives 0.9"),
    ],
)
def test_a_changed_row_is_found(record, kind, change, found):
    place = next(index for index, event in enumerate(record.events) if event.kind == kind)
    events = [*record.events[:place], *change(record.events[place]), *record.events[place + 1 :]]
    assert any(found in text for text in violations(replace(record, events=events)))


@pytest.mark.parametrize(
    ("kind", "change", "found"),
    [
        ("forward", changed(joules=1.5), "drew 1.5 J, the profile gives 1.66667 J"),
        ("forward", changed(joules=1.7), "drew 1.7 J, the profile gives 1.66667 J"),
        ("forward", changed(seconds=2.0), "another computation or transfer was in progress"),
        ("server", changed(detail='{"joules": 9}'), "drew 9 J, the profile gives 0.00125 J"),
        ("server", lambda event: [event, event], "another computation or transfer was in progress"),
    ],
)
def test_a_changed_row_of_an_evaluation_is_found(run, kind, change, found):  # noqa: F811
    """Ten images take a third of a second at 5 W, a mean of three models 0.25 ms."""
    made = run(rounds=2, server_device=device(4e9), evaluation=RoundEvaluation(1.0, np.array([10, 10]), on_server=0))
    test_a_changed_row_is_found(made.record, kind, change, found)


def test_a_battery_that_gives_more_than_it_held_and_was_charged_is_found(record):
    battery = Battery(capacity=1.0, charging=0.1)
    profiles = tuple(each.model_copy(update={"battery": battery}) for each in record.fleet.profiles)
    found = list(violations(replace(record, fleet=replace(record.fleet, profiles=profiles))))
    assert any("its battery has given" in text for text in found)


def test_a_job_without_its_update_is_found(record):
    events = [event._replace(item="down") if event.item == "up" else event for event in record.events]
    assert any("had sent no update of its job 0" in text for text in violations(replace(record, events=events)))


def test_a_model_that_changes_outside_of_aggregations_is_found(record):
    """Digests of models: A at the start, B after the first round, then C."""
    digests = {
        ("run", -1): {"model": "A"},
        ("aggregation", 1): {"before": "A", "model": "B"}, ("evaluation", 1): {"model": "C"},
        ("aggregation", 2): {"before": "B", "model": "C"}, ("evaluation", 2): {"model": "C"},
        ("aggregation", 3): {"before": "X", "model": "D"}, ("evaluation", 3): {"model": "D"},
    }  # fmt: skip
    known = [digests.get((event.kind, event.round)) for event in record.events]
    events = [
        event._replace(detail=json.dumps(event.facts | more)) if more else event
        for event, more in zip(record.events, known, strict=True)
    ]
    found = list(violations(replace(record, events=events)))
    assert [text.split(": ")[1] for text in found] == [
        "the evaluated model is not the result of the last aggregation",
        "the server's model was changed outside of an aggregation, before this one",
    ]
