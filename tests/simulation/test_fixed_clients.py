"""Clients that a selection names and that are away: the run waits for them, and for nobody else."""

from __future__ import annotations

import dataclasses
import json

import pytest

from edgefl.fleet.availability import Trace
from edgefl.simulation import run as run_module


@pytest.fixture(name="with_hours")
def with_hours_fixture(run, monkeypatch, tmp_path, device):
    """Runs a small world in which client k is there in the k-th list of intervals, repeating after 100 s."""

    def make(*clients, **options):
        availability = []
        for number, pairs in enumerate(clients):
            path = tmp_path / f"{number}.json"
            row = {"active": [a for a, _ in pairs], "inactive": [b for _, b in pairs], "finish_time": 100}
            path.write_text(json.dumps([row]), encoding="utf-8")
            availability.append(Trace(kind="trace", file=str(path), shift=False))
        original = run_module.simulate_run

        def changed(setup):
            fleet = dataclasses.replace(setup.fleet, availability=tuple(availability))
            object.__setattr__(setup, "fleet", fleet)
            return original(setup)

        monkeypatch.setitem(run.__globals__, "simulate_run", changed)
        devices = [device(1e9 + client) for client in range(len(clients))]
        return run(rates=[8e6] * len(clients), devices=devices, cohort=1, **options)

    return make


FIXED = {"kind": "fixed", "clients": [1]}


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_a_listed_client_that_never_comes_stalls_the_run_though_others_come_and_go(with_hours, protocol):
    result = with_hours([(0, 50)], [], selector=FIXED, protocol=protocol)
    assert (result.outcome.reason, result.outcome.rounds, result.outcome.seconds) == ("stalled", 0, 0.0)
    (why,) = result.of("stalled")
    assert "only clients 1" in json.loads(why.detail)["reason"]


@pytest.mark.parametrize("protocol", [{}, {"kind": "asynchronous"}])
def test_a_listed_client_that_comes_later_is_waited_for(with_hours, protocol):
    result = with_hours([(0, 50)], [(70, 90)], selector=FIXED, protocol=protocol, rounds=2)
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([74, 78])
    assert result.of("stalled") == []
