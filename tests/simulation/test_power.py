"""Power, and who is present."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from edgefl.fleet import Accidents, FleetAssignment
from edgefl.fleet.availability import Trace
from edgefl.scheduling.selection.uniform import UniformSelector

from .conftest import cells


def changed(profile, *, battery=None, **radio):
    data = profile.model_dump(mode="json", exclude_none=True)
    data["name"] += "-changed"
    data["power"]["radio"].update(radio)
    if battery is not None:
        data["battery"] = battery
    return type(profile).model_validate(data)


def charged(result, item):
    return [(event.time, event.seconds, event.joules) for event in result.of("radio", item=item, client=0)]


def capacities_that_change(times):
    """Sets the client's capacity to what it is, at each of these moments."""

    def attach(network):
        for seconds in times:
            network.env.timeout(seconds).callbacks.append(
                lambda _: network.set_capacity("internet", "client/0", network.capacity("internet", "client/0"))
            )

    return SimpleNamespace(attach=attach, round_begins=lambda network, round: None)


def test_a_tail_is_cut_by_the_next_transfer_and_only_a_sleeping_radio_is_promoted(run, device):
    radio = changed(device(), promotion=3.0, tail={"seconds": 1.5, "watts": 4.0})
    result = run(devices=[radio] * 2, rounds=2)
    # Download 0-1, upload 3-4, at once download 4-5, upload 7-8: tails of 1.5 s within both computations.
    assert charged(result, "tail") == [
        (pytest.approx(2.5), pytest.approx(1.5), pytest.approx(6.0)),
        (pytest.approx(4.0), pytest.approx(0.0), pytest.approx(0.0)),
        (pytest.approx(6.5), pytest.approx(1.5), pytest.approx(6.0)),
        (pytest.approx(8.0), pytest.approx(0.0), pytest.approx(0.0)),
    ]
    assert [joules for _, _, joules in charged(result, "promotion")] == [3.0] * 3
    assert result.outcome.spent["joules"] == pytest.approx(2 * (2 * (10 + 2 * 3 + 2) + 2 * 6 + 3 * 3), rel=1e-9)


@pytest.mark.parametrize("changes", [[], [k / 97 for k in range(1, 380)]])
def test_joules_do_not_depend_on_how_often_rates_are_solved(run, device, changes):
    radio = changed(device(), promotion=3.0, tail={"seconds": 1.5, "watts": 4.0})
    result = run(devices=[radio], rates=[8e6], rounds=1, capacity_changes=capacities_that_change(changes))
    assert result.outcome.spent["joules"] == pytest.approx(10 + 2 * 3 + 2 + 6 + 2 * 3, rel=1e-9)


@pytest.mark.parametrize(
    ("joules", "seconds"),
    [
        (2.0, 0.5),  # 4 W while downloading: 1 W idle, 2 W radio, 1 MB/s at 1 J/MB
        (4.0 + 2.5, 1.5),  # 5 W while computing
        (4.0 + 10.0 + 3.0, 3.75),  # 4 W while uploading
    ],
)
def test_a_battery_runs_empty_at_the_exact_moment(run, device, joules, seconds):
    powered = changed(device(), battery={"capacity": joules})
    changes = capacities_that_change([k / 97 for k in range(1, 380)])
    result = run(devices=[powered, device()], rounds=1, capacity_changes=changes)
    (drop,) = result.of("dropout")
    assert (drop.client, drop.item) == (0, "battery")
    assert drop.time == pytest.approx(seconds, rel=1e-9)
    assert sum(event.joules for event in result.of("idle", client=0)) < joules
    drawn = [e.joules for e in result.events if e.client == 0 and e.kind != "work"]
    assert sum(drawn) == pytest.approx(joules, rel=1e-5)  # delivered bytes are whole
    assert result.outcome.rows[0].aggregated == 1


@pytest.mark.parametrize(("joules", "seconds"), [(4 + 9 * 0.3, 1.3), (4 + 9 * 0.5 + 5 * 0.5, 2.0)])
def test_a_tail_drains_the_battery_too(run, device, joules, seconds):
    # 4 J for the download of 1 s, then 5 W for computing and 4 W for the tail of 0.5 s.
    lingering = changed(device(), battery={"capacity": joules}, tail={"seconds": 0.5, "watts": 4})
    result = run(devices=[lingering, device()], rounds=1)
    assert result.of("dropout")[0].time == pytest.approx(seconds, rel=1e-9)
    assert charged(result, "tail")[0][2] == pytest.approx(4 * min(0.5, seconds - 1), rel=1e-9)


def test_a_radio_wakes_with_what_is_left(run, device):
    # 3 J are asked for at once; the battery has 2, and the device drops out before it has received anything.
    weak = changed(device(), battery={"capacity": 2.0}, promotion=3.0)
    result = run(devices=[weak, device()], rounds=1)
    assert result.of("dropout")[0].time == 0
    assert [row[2] for row in charged(result, "promotion")] == [2.0]


def test_an_empty_device_is_picked_no_more_unless_it_charges(run, device):
    never = run(devices=[changed(device(), battery={"capacity": 20}), device()], rounds=4)
    assert [row.participants for row in never.outcome.rows] == [2, 2, 1, 1]
    assert len(never.of("dropout")) == 1
    # Empty at 4.5 s; 8.75 J at 8 s are too few, 18.75 J at 12 s enough; the 0.75 J of 16 s are no empty battery.
    battery = {"capacity": 20, "charging": "2.5 W", "resume": 0.5}
    charging = run(devices=[changed(device(), battery=battery), device()], rounds=5)
    assert [row.participants for row in charging.outcome.rows] == [2, 2, 1, 2, 2]


def test_a_fleet_of_empty_batteries_waits_for_their_charging(run, device):
    battery = {"capacity": 20, "start": 0.5, "charging": "1 W", "resume": 0.9}
    result = run(devices=[changed(device(), battery=battery)], rates=[8e6], rounds=3)
    # Empty after 1 s of 4 W and 6 J at 5 W; 18 J after 18 s: one round of 18 J, in which it just runs empty or ends.
    assert result.of("dropout")[0].time == pytest.approx(2.2, rel=1e-9)
    assert result.of("transfer_start")[1].time == pytest.approx(20.2, rel=1e-9)
    stalled = run(devices=[changed(device(), battery={"capacity": 10})], rates=[8e6], rounds=3)
    assert stalled.outcome.reason == "stalled"


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
def test_a_device_that_goes_in_the_midst_of_a_phase_breaks_it_off(run, hours, device, goes, row, seconds):
    fleet = {"availability": (*hours((0, goes)), *hours((0, 100)))}
    result = run(fleet=fleet, devices=[device(1e9), device(1e9 + 1)], rounds=1)
    drops = result.of("dropout")
    assert [(event.client, event.time, event.item) for event in drops] == [(0, pytest.approx(goes), "unavailable")]
    assert [event.seconds for event in result.of(row, client=0)] == pytest.approx([seconds])
    assert result.outcome.rows[0].aggregated == 1


def test_a_round_waits_until_somebody_comes(run, hours):
    result = run(fleet={"availability": hours((40, 50))}, rounds=3)
    # 40 s of waiting, two rounds of 4 s, and a third when there is time for it.
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([44, 48, 144])
    assert [row.aggregated for row in result.outcome.rows] == [2, 2, 2]
    assert [event.value for event in result.of("round_start")] == [2, 2, 2]


PROTOCOLS = [{}, {"kind": "asynchronous", "buffer": 1}, {"kind": "hierarchical"}, {"over_select": 2.0}]


@pytest.fixture(params=PROTOCOLS, ids=str)
def anyhow(request, run):
    """Runs a world under each protocol."""
    topology = {"topology": cells([8e6] * 2)} if request.param.get("kind") == "hierarchical" else {}
    return lambda **options: run(protocol=request.param, rounds=3, **topology, **options)


@pytest.mark.parametrize(
    ("windows", "seconds", "reason"),
    [
        ([], 0, "no client can take part, now or later"),
        ([(5, 5), (60, 60)], 0, "no client can take part, now or later"),
        ([(10, 12), (20, 22.5), (60, 63)], 110, "no available client stayed for as long as"),
    ],
    ids=["never", "no length", "too short"],
)
def test_a_run_in_which_nobody_can_take_part_stalls_under_every_protocol(anyhow, hours, windows, seconds, reason):
    result = anyhow(fleet={"availability": hours(*windows)})
    assert (result.outcome.reason, result.outcome.rounds) == ("stalled", 0)
    assert seconds <= result.outcome.seconds <= seconds + 10
    assert reason in result.of("stalled")[0].detail
    assert result.of("transfer_start") == []


def test_a_selector_that_picks_nobody_of_those_who_come_stalls_the_run(anyhow, hours, device, monkeypatch):
    monkeypatch.setattr(UniformSelector, "pick", lambda self, round, available, *others: available[:0])
    fleet = {"availability": (*hours((10, 40)), *hours((50, 90)))}
    result = anyhow(fleet=fleet, devices=[device(1e9), device(1e9 + 1)])
    assert (result.outcome.reason, result.outcome.rounds, result.outcome.seconds) == ("stalled", 0, 110)
    assert "after which all traces repeat, selection picked no available client" in result.of("stalled")[0].detail


def test_blinks_are_no_rounds_and_the_long_window_after_them_has_all(anyhow, hours):
    blinks = [(number, number + 0.2) for number in range(1, 60, 4)]
    result = anyhow(fleet={"availability": hours(*blinks, (60, 100))})
    assert (result.outcome.reason, result.outcome.rounds) == ("rounds", 3)
    assert result.of("transfer_start")[0].time == pytest.approx(60)


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
