"""A replay of an app's run equals a run of the app there, without its code, or is refused with the reason."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.record import RunPaths
from edgefl.rerun.replay import replay
from edgefl.rerun.verify import verify

from ..small_runs import tree
from .runs import APPS, DOWN, LATENCY, UP, app_run, events_of, made_app, needs_flwr, summary_of, world

pytestmark = needs_flwr

CURRENT = {
    "flower": {"app": str(APPS / "current"), "run_config": {"num-server-rounds": 2}},
    "methods": [{"as": "plain"}, {"as": "asked", "run_config": {"fraction-evaluate": 1.0}}],
    "seeds": [0, 1],
}
LEGACY = {"flower": {"app": str(APPS / "legacy"), "seconds": {"train": "7 s", "evaluate": "1 s", "query": "2 s"}}}
FAST = {"network.links.wifi.down": "40 Mbit/s", "network.links.wifi.up": "10 Mbit/s"}
OTHER_DEVICES = {
    "fleet": [
        {"profile": "raspberry-pi-5", "share": 0.5, "link": "wifi"},
        {"profile": "raspberry-pi-zero-2w", "share": 0.5, "link": "wifi"},
    ]
}


def scenario_on(changes):
    """The keys of a scenario with changes by path."""
    network = json.loads(json.dumps(world()["network"]))
    for path, value in changes.items():
        if path.startswith("network."):
            *folders, name = path.split(".")[1:]
            place = network
            for folder in folders:
                place = place[folder]
            place[name] = value
    return {"network": network} | {path: value for path, value in changes.items() if "." not in path}


@pytest.fixture(scope="module")
def current(tmp_path_factory):
    return app_run(tmp_path_factory.mktemp("runs") / "current", **CURRENT).scenario.parent


@pytest.mark.parametrize(
    ("keys", "changes"),
    [(CURRENT, OTHER_DEVICES), (LEGACY, FAST)],
    ids=["another fleet", "a legacy app"],
)
@pytest.mark.filterwarnings("ignore:replies that the app gets at once:UserWarning")
def test_a_replay_equals_a_run_of_the_app_there_byte_for_byte(tmp_path, monkeypatch, keys, changes):
    finished = app_run(tmp_path / "run", **keys).scenario.parent
    expected = app_run(tmp_path / "expected", **{**keys, **scenario_on(changes)}).scenario.parent
    monkeypatch.setattr("edgefl.flower.client_work.Clients.__init__", None)
    monkeypatch.setattr("edgefl.flower.setup.loaded", None)
    replayed = replay(finished, changes, tmp_path / "replayed")
    found, wanted = tree(replayed), tree(expected)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert verify(replayed) == []


def test_the_seconds_of_a_replay_are_those_of_its_links(current, tmp_path):
    paths = RunPaths(replay(current, FAST, tmp_path / "replayed", methods=["plain"]))
    time = 0.0
    for row in events_of(paths, "plain", 0, "round_end"):
        own = [each for each in events_of(paths, "plain", 0) if each.round == row.round and each.client == row.client]
        sent = {each.item: each.bytes for each in own if each.kind == "transfer_end"}
        (work,) = {each.seconds for each in own if each.kind == "compute_end"}
        time += 2 * LATENCY + 8 * sent["down"] / (2 * DOWN) + 8 * sent["up"] / (2 * UP) + work
        assert row.time == pytest.approx(time, abs=1e-9)
    before = summary_of(RunPaths(current), "plain")
    assert summary_of(paths, "plain")["seconds"] == pytest.approx(time, abs=1e-9) != before["seconds"]
    assert summary_of(paths, "plain")["accuracy"] == before["accuracy"]
    assert list(json.loads(paths.summary.read_text())["methods"]) == ["plain"]


@pytest.mark.full
def test_a_replay_needs_neither_flwr_nor_the_app(tmp_path):
    made = made_app(tmp_path / "app", "grid.send_and_receive(messages(grid, 'train'))\ntime.sleep(3)")
    finished = app_run(tmp_path / "run", flower=made).scenario.parent
    shutil.rmtree(tmp_path / "app")
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "from pathlib import Path; from edgefl.rerun.replay import replay; from edgefl.rerun.verify import verify\n"
        f"run = Path({str(finished)!r})\n"
        "assert verify(replay(run, [], run.with_name('replayed'))) == []"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert tree(finished) == tree(tmp_path / "replayed")


def refused(run, tmp_path, changes) -> str:
    with pytest.raises(UserError) as told:
        replay(run, changes, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    return str(told.value)


def test_a_time_out_that_hits_other_clients_is_refused(tmp_path):
    config = {"behaviour": "sleeps", "num-server-rounds": 2, "timeout": 5.0}
    run = app_run(tmp_path / "run", flower={"app": str(APPS / "current"), "run_config": config}).scenario.parent
    # One second before and after the time-out of 5 s: 3966 bytes go down, 4048 up.
    assert replay(run, {"network.topology.latency": "2.4 s"}, tmp_path / "replayed").is_dir()
    message = refused(run, tmp_path, {"network.topology.latency": "2.6 s"})
    assert "flower, seed 0" in message
    assert "round 1: the app gets no reply here, and replies of clients 1, 2, 3 in the run" in message
    assert "so the app could decide differently, and the run cannot be replayed: simulate it instead" in message


def test_a_client_that_is_lost_elsewhere_is_refused(current, tmp_path):
    message = refused(current, tmp_path, {"failures": [{"kind": "crash", "client": 1, "at": "1 ms"}]})
    assert "round 1: the app gets replies of clients 0, 2, 3 and errors (unavailable) of clients 1 here" in message


def test_other_nodes_than_the_app_found_are_refused(tmp_path):
    server = "time.sleep(10)\nsay(len(grid.get_node_ids()))\ntime.sleep(10)"
    run = app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server)).scenario.parent
    later = replay(run, {"failures": [{"kind": "crash", "client": 1, "at": "15 s"}]}, tmp_path / "later")
    assert summary_of(RunPaths(later))["seconds"] == 20
    message = refused(run, tmp_path, {"failures": [{"kind": "crash", "client": 1, "at": "5 s"}]})
    assert "the absent clients [1] here, and none in the run" in message


@pytest.mark.filterwarnings("ignore:client 1. the ClientApp raised:UserWarning")
def test_a_clients_own_error_is_replayed(tmp_path):
    client = "if partition == 1:\n    raise ValueError('no data')\nreturn Message(RecordDict(), reply_to=message)"
    made = made_app(tmp_path / "app", "grid.send_and_receive(messages(grid, 'train'))", client)
    run = app_run(tmp_path / "run", flower=made).scenario.parent
    expected = app_run(tmp_path / "expected", flower=made, **scenario_on(FAST)).scenario.parent
    assert tree(replay(run, FAST, tmp_path / "replayed")) == tree(expected)


PULLS = """
ids = list(grid.push_messages(messages(grid, "train")))
while ids:
    replies = grid.pull_messages(ids)
    ids = [each for each in ids if each not in [reply.metadata.reply_to_message_id for reply in replies]]
"""


def test_replies_that_are_pulled_in_the_same_steps_are_replayed_and_others_refused(tmp_path):
    slow = {"links": {"wifi": {"down": "20 Mbit/s", "up": "5 Mbit/s"}, "wire": {"down": "1 Gbit/s", "up": "1 Gbit/s"}}}
    keys = {
        "flower": made_app(tmp_path / "app", PULLS),
        "network": world()["network"] | slow,
        "fleet": [
            {"profile": "raspberry-pi-5", "share": 0.5, "link": "wifi"},
            {"profile": "raspberry-pi-5", "share": 0.5, "link": "wire"},
        ],
    }
    run = app_run(tmp_path / "run", **keys).scenario.parent
    there = replay(run, FAST, tmp_path / "replayed")
    expected = app_run(
        tmp_path / "expected",
        **{**keys, "network": {**keys["network"], "links": {**slow["links"], "wifi": {"down": 40e6, "up": 10e6}}}},
    ).scenario.parent
    assert tree(there) == tree(expected)
    message = refused(run, tmp_path, {"network.links.wifi.up": "1 Gbit/s", "network.links.wifi.down": "1 Gbit/s"})
    assert "round 1: the app gets replies of clients 0, 1, 2, 3 here, and replies of clients" in message


def test_a_run_that_a_budget_ended_is_replayed_up_to_there_and_no_further(current, tmp_path):
    (half,) = {row.time for row in events_of(RunPaths(current), "plain", 0, "round_end") if row.round == 1}
    budget = {"budgets": {"seconds": 1.5 * half}}
    run = app_run(tmp_path / "run", **{**CURRENT, "methods": [{"as": "plain"}], **budget}).scenario.parent
    assert tree(replay(run, [], tmp_path / "same")) == tree(run)
    assert verify(run) == []
    message = refused(run, tmp_path, {"budgets": {}})
    assert "the finished run ended by 'seconds' before the app did what is next" in message
    shorter = replay(current, {**budget, "network.links.wifi.up": "4 Mbit/s"}, tmp_path / "shorter")
    assert summary_of(RunPaths(shorter), "plain")["stop"]["reason"] == "seconds"


def test_what_the_app_decides_cannot_be_changed(current, tmp_path):
    assert "training depends on 'flower'" in refused(current, tmp_path, {"flower.run_config.lr": 1})
    assert "no link 'wifi'" in refused(current, tmp_path, {"network.links": {"lan": {"down": 1e6, "up": 1e6}}})
    with pytest.raises(UserError, match="the run has no method 'x'"):
        replay(current, [], tmp_path / "refused", methods=["x"])


def test_verify_simulates_the_run_again_with_the_recorded_calls(current, tmp_path, capsys):
    assert main(["verify", str(current)]) == 0
    assert "same results when simulated again with the recorded calls of its Flower app" in capsys.readouterr().out
    changed = shutil.copytree(current, tmp_path / "changed")
    summary = json.loads(RunPaths(changed).summary.read_text())
    summary["methods"]["plain"][1]["accuracy"]["best"] = 0.999
    RunPaths(changed).summary.write_text(json.dumps(summary))
    assert any("plain, seed 1" in each for each in verify(changed))


def test_the_server_apps_error_is_verified_and_not_replayed(tmp_path):
    from edgefl.experiment.faults import RunsFailed

    server = "grid.send_and_receive(messages(grid, 'train'))\nraise ValueError('no more')"
    with pytest.raises(RunsFailed):
        app_run(tmp_path / "run", flower=made_app(tmp_path / "app", server))
    assert verify(tmp_path / "run") == []
    assert "a fault ended it, so there is nothing to replay" in refused(tmp_path / "run", tmp_path, [])
