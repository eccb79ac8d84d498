"""Devices that come, go and drop out, against times worked out by hand: 1 s down, 2 s computing, 1 s up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgefl.fleet import Accidents, FleetAssignment
from edgefl.fleet.availability import Trace


@pytest.fixture(name="hours")
def hours_fixture(tmp_path):
    """The availability of a group whose devices are there in these intervals and repeat after 100 s."""

    def make(*pairs):
        device = {"active": [a for a, _ in pairs], "inactive": [b for _, b in pairs], "finish_time": 100}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps([device]), encoding="utf-8")
        return (Trace(kind="trace", file=str(path), shift=False),)

    return make


@pytest.mark.parametrize(
    ("goes", "row", "seconds"), [(0.5, "transfer_drop", 0.5), (2.0, "compute_drop", 1.0), (3.25, "transfer_drop", 0.25)]
)
def test_a_device_that_goes_in_the_midst_of_a_phase_breaks_it_off(run, hours, goes, row, seconds):
    result = run(fleet={"availability": hours((0, goes))}, rounds=1)
    drops = result.of("dropout")
    assert [(event.time, event.item) for event in drops] == [(pytest.approx(goes), "unavailable")] * 2
    assert [event.seconds for event in result.of(row)] == pytest.approx([seconds] * 2)
    assert result.outcome.rows[0].aggregated == 0
    assert result.outcome.rows[0].seconds == pytest.approx(goes)


def test_a_round_waits_until_somebody_comes(run, hours):
    result = run(fleet={"availability": hours((40, 50))}, rounds=3)
    # 40 s of waiting, two rounds of 4 s, and a third that is broken off at 50 s.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([44, 48, 50])
    assert [row.aggregated for row in result.outcome.rows] == [2, 2, 0]


def test_a_fleet_that_never_comes_stalls_the_run(run, hours):
    assert run(fleet={"availability": hours()}, rounds=3).outcome.reason == "stalled"
    asynchronous = run(fleet={"availability": hours()}, rounds=3, protocol={"kind": "asynchronous"})
    assert asynchronous.outcome.reason == "stalled"


def test_asynchronous_runs_dispatch_to_whoever_comes(run, hours):
    result = run(fleet={"availability": hours((10, 19))}, rounds=3, protocol={"kind": "asynchronous", "buffer": 2})
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([14, 18, 114])


def test_the_others_go_on_when_one_has_an_accident(run):
    rounds = 6
    result = run(fleet={"dropout": (0.5,)}, rounds=rounds, rates=[8e6] * 4)
    accidents = Accidents(FleetAssignment((None,), ("link",), np.zeros(4, np.int32), dropout=(0.5,)), 0)
    due = {(c, r): accidents.after(c, r) for c in range(4) for r in range(rounds)}
    assert {(e.client, e.round - 1) for e in result.of("dropout")} == {key for key, after in due.items() if after < 1}
    assert [e.seconds for e in result.of("compute_drop")] == pytest.approx(
        [2 * due[e.client, e.round - 1] for e in result.of("compute_drop")]
    )
    assert [row.aggregated for row in result.outcome.rows] == [
        sum(due[client, round] == 1 for client in range(4)) for round in range(rounds)
    ]


def test_an_asynchronous_run_of_which_nothing_comes_is_given_up_as_ten_rounds_are(run):
    endless = {"kind": "asynchronous", "concurrency": 2, "buffer": 1}
    result = run(fleet={"dropout": (1.0,)}, rounds=3, rates=[8e6] * 4, protocol=endless)
    assert (result.outcome.reason, result.outcome.rounds) == ("stalled", 0)
    assert len(result.of("dropout")) == 10 * 2
    (told,) = result.of("stalled")
    assert "the last 20 clients returned no update" in told.detail


FIXED = {"kind": "fixed", "clients": [1]}


def listed(run, hours, device, *clients, **options):
    """Runs a world in which client k, on a device of its own kind, is there in the k-th list of intervals."""
    devices = [device(1e9 + client) for client in range(len(clients))]
    fleet = {"availability": tuple(each for pairs in clients for each in hours(*pairs))}
    return run(rates=[8e6] * len(clients), devices=devices, cohort=1, selector=FIXED, fleet=fleet, **options)


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_a_listed_client_that_never_comes_stalls_the_run_though_others_come_and_go(run, hours, device, protocol):
    result = listed(run, hours, device, [(0, 50)], [], protocol=protocol)
    assert (result.outcome.reason, result.outcome.rounds, result.outcome.seconds) == ("stalled", 0, 0.0)
    (why,) = result.of("stalled")
    assert "only clients 1" in json.loads(why.detail)["reason"]


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_a_listed_client_that_comes_later_is_waited_for(run, hours, device, protocol):
    result = listed(run, hours, device, [(0, 50)], [(70, 90)], protocol=protocol, rounds=2)
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([74, 78])
    assert result.of("stalled") == []
