"""What is told of a run's timeline agrees with the figures that the run itself summed up while it went on."""

import math
from functools import lru_cache

import pytest

from edgefl import simulate
from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile
from edgefl.record.events import Event
from edgefl.report.timeline.data import read_timeline, timeline_of
from edgefl.report.timeline.usage import (
    Bottleneck,
    bottleneck_counts,
    bottlenecks_of,
    breakdown_of,
    traffic_of,
    use_of_clients,
)


@lru_cache
def course_at(folder):
    return read_timeline(folder)


def timelines(run):
    for label, results in run.results.items():
        for result in results:
            yield label, result, course_at(run.path / label / f"seed-{result.seed}")


@pytest.fixture(
    params=[
        "small_run",
        "late_run",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("cells", "asynchronous")),
    ]
)
def run(request):
    if request.param.endswith("_run"):
        return request.getfixturevalue(request.param)
    return request.getfixturevalue("other_protocols")[request.param]


def test_the_phases_of_a_rounds_critical_path_and_its_waiting_sum_to_the_round(run):
    for _, result, timeline in timelines(run):
        assert len(timeline.rounds) == result.rounds
        for round, seconds in zip(timeline.rounds, breakdown_of(timeline), strict=True):
            transfers = seconds.download + seconds.upload + seconds.framework
            whole = transfers + seconds.compute + seconds.waiting
            assert math.isclose(whole, round.ended - round.began, rel_tol=1e-9)
            if round.critical >= 0:
                assert math.isclose(transfers, round.exposed, abs_tol=1e-9)


def test_bytes_by_direction_and_fate_are_those_of_the_summary(run):
    for _, result, timeline in timelines(run):
        traffic = traffic_of(timeline)
        assert sum(traffic.down.values()) == result.bytes.down
        assert sum(traffic.up.values()) == result.bytes.up
        assert traffic.down["useful"] + traffic.up["useful"] == result.bytes.useful
        for fate, bytes in result.bytes.by_fate.items():
            assert traffic.down[fate] + traffic.up[fate] == bytes


def test_the_phase_that_limited_most_rounds_comes_first_although_its_devices_differ():
    rounds = [
        *(Bottleneck("upload", "own link", 9.0) for _ in range(2)),
        *(Bottleneck("compute", f"phone-{n}", 1.0) for n in (1, 2, 2)),
    ]
    found = [(limit.phase, limit.name, count) for limit, count in bottleneck_counts(rounds)]
    assert found == [("compute", "phone-2", 2), ("compute", "phone-1", 1), ("upload", "own link", 2)]


def test_the_clients_joules_and_bytes_sum_to_the_summary(run):
    for _, result, timeline in timelines(run):
        uses = use_of_clients(timeline)
        assert math.isclose(sum(sum(use.joules.values()) for use in uses), result.joules, rel_tol=1e-9)
        assert sum(use.bytes_down for use in uses) == result.bytes.down
        assert all(use.device != "–" for use in uses if use.seconds["compute"])


def test_hidden_seconds_are_those_of_prefetches_alone(small_run):
    for label, result, timeline in timelines(small_run):
        hidden = sum(seconds.hidden for seconds in breakdown_of(timeline))
        assert math.isclose(hidden, result.communication.hidden_seconds, rel_tol=1e-9)
        assert (hidden > 0) == (label == "fedadc")
        assert any(transfer.item == "prefetch" for transfer in timeline.transfers) == (label == "fedadc")


def test_the_link_with_the_least_capacity_for_each_flow_is_the_narrow_one():
    # Two flows share the server's 10 Mbit/s, 5 each; their own links offer 8: the server's link is the narrow one.
    path = '{"path": ["server", "gate", "client/0"]}'
    other = '{"path": ["server", "gate", "client/1"]}'
    events = [
        row(0.0, "transfer_start", client=0, dispatch=0, item="down", flow=0, detail=path),
        row(0.0, "transfer_start", client=1, dispatch=0, item="down", flow=1, detail=other),
        row(0.0, "capacity", source="server", target="gate", value=10e6),
        row(0.0, "capacity", source="gate", target="client/0", value=8e6),
        row(0.0, "capacity", source="gate", target="client/1", value=8e6),
        row(1.0, "transfer_end", client=0, dispatch=0, item="down", flow=0, bytes=625_000, seconds=1.0),
        row(1.0, "transfer_end", client=1, dispatch=0, item="down", flow=1, bytes=625_000, seconds=1.0),
        row(1.0, "round_end", client=0, value=1.0, dispatch=0),
    ]
    assert bottlenecks_of(timeline_of(events)) == [("download", "server → gate", 1.0)]
    alone = [event for event in events if event.client != 1]
    assert bottlenecks_of(timeline_of(alone))[0].name.startswith("own link")


@pytest.mark.parametrize(("delivered", "limited"), [(200_000, True), (600_000, False)])
def test_a_tcp_connection_far_below_its_share_of_the_links_limits_itself(delivered, limited):
    # The slowest link offers 8 Mbit/s, 1 MB in the second of the transfer.
    facts = '{"path": ["server", "client/0"], "connection": {"setup": 0.0}}'
    events = [
        row(0.0, "transfer_start", client=0, dispatch=0, item="down", flow=0, detail=facts),
        row(0.0, "capacity", source="server", target="client/0", value=8e6),
        row(1.0, "transfer_end", client=0, dispatch=0, item="down", flow=0, bytes=delivered, seconds=1.0),
        row(1.0, "round_end", client=0, value=1.0, dispatch=0),
    ]
    (found,) = bottlenecks_of(timeline_of(events))
    assert found.name.startswith("TCP connection" if limited else "own link")
    fluid = [event._replace(detail=facts.replace("connection", "other")) if event.detail else event for event in events]
    assert bottlenecks_of(timeline_of(fluid))[0].name.startswith("own link")


def test_a_log_that_cannot_be_read_is_the_users_error(small_run, tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_timeline(tmp_path)
    (tmp_path / "events.parquet").write_bytes(b"PAR1 no longer")
    rounds = small_run.path / "fedavg" / "seed-0" / "rounds.parquet"
    (tmp_path / "events.parquet").write_bytes(rounds.read_bytes())
    with pytest.raises(UserError, match=r"events\.parquet"):
        read_timeline(tmp_path)


def row(time, kind, **columns):
    return Event(time=time, kind=kind, round=1, **columns)


OVERHEAD = {"start": 0.2, "wait": 0.05, "per_megabyte": 0.5}
SHAPES = {
    "rounds": {},
    "overlap": {"methods": [{"method": "fedadc", "overlap": True}]},
    "local": {"methods": ["local"]},
    "asked": {"training.selection": {"kind": "power_of_choice", "candidates": 6}},
    "asynchronous": {"protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4}},
    "cells": {
        "protocol": {"kind": "hierarchical"}, "network.topology": {
            "kind": "cells", "cells": 2, "server": {"down": "200 Mbit/s", "up": "200 Mbit/s"},
            "backhaul": {"down": "200 Mbit/s", "up": "200 Mbit/s"}, "latency": "20 ms"},
    },
    "accidents": {"protocol": {"kind": "synchronous", "retries": 1}, "fleet.0.dropout": 0.6},
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_the_frameworks_time_is_what_the_scenario_says_for_each_device_and_payload(tmp_path, shape):
    """wait + (start + per_megabyte · MB) / core speed before training, and per_megabyte · MB / core speed after it."""
    changes = {"seeds": [0], "methods": ["fedavg"], "training.rounds": 4, "stop": "rounds", "round_overhead": OVERHEAD}
    found = simulate("5g_100clients", out=tmp_path / "run", train=False, overrides={**changes, **SHAPES[shape]})
    timeline = read_timeline(found.of(found.labels[0], 0).folder)
    profiles = [DeviceProfile.model_validate(each["profile"]) for each in found.scenario["fleet"]]
    speeds = {each.name: each.core_speed for each in profiles}
    before, expected, sending = {}, [], 0
    for each in timeline.computations:
        own = [of for of in timeline.transfers if (of.client, of.dispatch, of.round) == (*each.job, each.round)]
        down = [of for of in own if not of.up and before.get(each.job, 0.0) <= of.started < of.ended <= each.started]
        before[each.job] = each.ended
        speed = speeds[timeline.device_of(each.client)]
        seconds = (OVERHEAD["start"] + OVERHEAD["per_megabyte"] * sum(of.bytes for of in down) / 1e6) / speed
        expected.append((each.client, each.started - OVERHEAD["wait"] - seconds, each.started))
        up = [of for of in own if of.up and each.whole]
        sending += bool(up) and shape != "local"
        if up and up[0].whole and up[0].bytes:
            seconds = OVERHEAD["per_megabyte"] * up[0].bytes / 1e6 / speed
            expected.append((each.client, each.ended, each.ended + seconds))
    spans = [(each.client, each.started, each.ended) for each in timeline.frameworks]
    assert len(expected) > 15
    assert len(spans) == len(timeline.computations) + sending
    for span in expected:
        assert (
            min(abs(start - span[1]) + abs(end - span[2]) for client, start, end in spans if client == span[0]) < 1e-6
        )
