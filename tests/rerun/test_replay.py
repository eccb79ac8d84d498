"""A replay on another network equals a full run there bit for bit, or is refused with the reason."""

from __future__ import annotations

import json
import shlex

import pytest

from edgefl.cli import main
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.record.summary import read_run
from edgefl.rerun.verify import verify
from edgefl.training.learner import MethodLearner

from ..small_runs import ACCIDENTS, FAILING, LEVELS, LOCAL_PART, OUTAGES, TCP, TIMEOUTS, replay, tree

METHODS = [{"method": "fedadc", "overlap": True}, "scaffold", {"method": "fedbr", "scheduler": "random"}]
SLOW = {"network.links.5g.down": "3 Mbit/s", "network.links.5g.up": "1 Mbit/s", "network.links.5g.redraw": None}
OTHER_DEVICES = {"fleet": [{"profile": "jetson-orin-nano", "share": 1, "link": "5g"}]}


@pytest.mark.parametrize(
    ("changes", "methods"),
    [(SLOW, METHODS[:2]), pytest.param(OTHER_DEVICES, METHODS, marks=pytest.mark.full)],
    ids=["network", "fleet"],
)
def test_a_replay_equals_a_full_run_without_training_anything(small, tmp_path, monkeypatch, changes, methods):
    said = {"methods": methods, "keep_models": "clients", "evaluation": {"every": 2, "ensemble": {"decay": 0.5}}}
    elsewhere = {name.replace(".", "__"): value for name, value in changes.items()}
    expected = run(small(**said, **elsewhere), out=tmp_path / "expected")
    finished = run(small(**said), out=tmp_path / "run")
    monkeypatch.delattr(MethodLearner, "aggregate")
    replayed = replay(finished, changes, tmp_path / "replayed")
    found, wanted = tree(replayed), tree(expected)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert verify(replayed) == []


@pytest.mark.full
def test_a_diverged_run_replays_to_the_same_end(small, tmp_path):
    wild = {"methods": ["fedavg", {"method": "fedprox", "as": "wild", "local": {"lr": 1e9}}]}
    expected = run(small(**wild, network__links__5g__redraw=None), out=tmp_path / "expected")
    finished = run(small(**wild), out=tmp_path / "run")
    assert tree(replay(finished, {"network.links.5g.redraw": None}, tmp_path / "replayed")) == tree(expected)
    assert json.loads((expected / "summary.json").read_text())["methods"]["wild"][0]["stop"]["reason"] == "diverged"


@pytest.mark.full
def test_budgets_and_targets_can_be_asked_afterwards(small, tmp_path):
    asked = {"targets": [0.2, 0.4], "budgets": {"seconds": 0.1, "bytes": 50_000}}
    expected = run(small(**asked), out=tmp_path / "expected")
    finished = run(small(), out=tmp_path / "run")
    assert tree(replay(finished, asked, tmp_path / "replayed")) == tree(expected)


# Enough retries, so that no client drops out on either network.
PATIENT = {**FAILING, "network__transport": {"timeouts": {**TIMEOUTS, "retries": 40}}}
ADAM = {"method": "fedavg", "local": {"optimizer": {"kind": "adam", "state": "keep"}}}
SHORTER = {**OUTAGES, "outage_length": "200 ms"}
LATENCY = {"network.topology.latency": "90 ms"}
FEATURES = {
    "losses that clients were asked for": ({"training__selection": "power_of_choice"}, LATENCY),
    "TCP": ({"methods": METHODS[:1]}, {"network.transport": TCP, "network.topology.server.up": "200 kbit/s"}),
    "broken transfers": (PATIENT, {"network.links.5g.down": SHORTER, "network.links.5g.up": SHORTER}),
    "capacity levels": (LEVELS, LATENCY),
    "local part": (LOCAL_PART, LATENCY),
    "kept optimizer": ({**ACCIDENTS, "methods": [ADAM]}, LATENCY),
    "broadcasts": (
        {
            "methods": [
                {"method": "fedbr", "scheduler": {"kind": "fixed", "alpha": 2}, "full_every": 3, "full_to": "all"}
            ]
        },
        LATENCY,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_is_replayed_to_the_files_of_a_full_run(small, tmp_path, feature):
    said, changes = FEATURES[feature]
    elsewhere = {name.replace(".", "__"): value for name, value in changes.items()}
    finished, expected = (
        run(small(**said), out=tmp_path / "run"),
        run(small(**said, **elsewhere), out=tmp_path / "full"),
    )
    assert tree(replay(finished, changes, tmp_path / "replayed")) == tree(expected)
    assert verify(expected) == []


def refused(small, tmp_path, changes, **said) -> str:
    finished = run(small(**said), out=tmp_path / "run")
    with pytest.raises(UserError) as told:
        replay(finished, changes, tmp_path / "replayed")
    assert not (tmp_path / "replayed").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "small.yaml"]
    return str(told.value)


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        (
            {"methods": [{"method": "fedbr", "scheduler": "gmbs"}]},
            ["fedbr: its decision on blocks in round 2 read compute_seconds and transfer_seconds"],
        ),
        pytest.param(
            {"training__selection": "refl"},
            ["its decision on selection in round 1 read availability and now"],
            marks=pytest.mark.full,
        ),
        ({"protocol": {"deadline": "90 ms"}}, ["with protocol.deadline the aggregated updates depend on arrival"]),
        pytest.param({"protocol": {"over_select": 1.5}}, ["protocol.over_select"], marks=pytest.mark.full),
        pytest.param({"protocol": {"kind": "asynchronous"}}, ["protocol.kind: asynchronous"], marks=pytest.mark.full),
    ],
)
def test_a_run_in_which_time_decided_is_refused(small, tmp_path, said, parts):
    message = refused(small, tmp_path, SLOW, **said)
    for part in parts:
        assert part in message


def test_a_run_that_a_budget_ended_is_replayed_as_far_as_it_was_trained(small, tmp_path):
    budget = {"stop": "budget", "training__rounds": 9, "budgets": {"seconds": 0.52}, "evaluation": {"every": 2}}
    finished = run(small(**budget), out=tmp_path / "run")
    trained = ended(finished)
    assert (trained.stop.reason, trained.rounds) == ("seconds", 5)
    again = replay(finished, {}, tmp_path / "again")
    assert tree(again) == tree(finished)
    slow = ended(replay(finished, SLOW, tmp_path / "slow"))
    full = ended(run(small(**budget, **{k.replace(".", "__"): v for k, v in SLOW.items()}), out=tmp_path / "expected"))
    assert (slow, slow.rounds) == (full, 4)
    fast = replay(finished, {"network.topology.latency": "1 ms"}, tmp_path / "fast")
    assert ended(fast).stop.model_dump() == {
        "reason": "trained",
        "round": 5,
        "message": "trained for 5 rounds only; the finished run ended by 'seconds' in round 6",
    }
    assert ended(fast).metric == trained.metric
    assert verify(fast) == []


def test_a_replay_without_a_round_is_refused(small, tmp_path):
    assert "exceeds budgets.seconds" in refused(small, tmp_path, {"budgets.seconds": 0.01, "stop": "budget"})


def ended(folder):
    ((entry,),) = read_run(folder)[1].methods.values()
    return entry


def test_a_change_of_training_and_a_run_without_training_are_refused(small, tmp_path):
    assert "training depends on 'model'" in refused(small, tmp_path, {"model.width": 4})
    timed = run(small(), out=tmp_path / "timed", train=False)
    with pytest.raises(UserError, match="it has no training"):
        replay(timed, SLOW, tmp_path / "replayed")


def test_the_command_names_what_it_does_not_replay_and_how_to_train_it(small, tmp_path, capsys):
    gmbs = {"method": "fedbr", "scheduler": "gmbs"}
    finished = run(small(methods=["fedavg", gmbs], training__rounds=2), out=tmp_path / "a run")
    why = "its decision on blocks in round 2 read compute_seconds and transfer_seconds"
    change = "network.links.5g.down=2 Mbit/s"
    arguments = ["--set", "fleet.0.pace=2", "--set", change, "--set", "network.links.5g.redraw=null"]
    assert main(["replay", str(finished), *arguments, "--out", str(tmp_path / "slow")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "Changed: pace 1 → 2; down uniform → 2 Mbit/s; redraw 2 rounds → null" in printed
    (line,) = [line for line in printed if line.startswith("fedbr is not replayed")]
    head, _, command = line.partition("; train it there: edgefl ")
    assert head == f"fedbr is not replayed: {why}"
    capsys.readouterr()
    assert main(shlex.split(command)) == 0
    assert json.loads((tmp_path / "slow-fedbr/summary.json").read_text())["methods"].keys() == {"fedbr"}


@pytest.mark.full
def test_the_command_replays_on_many_networks(small, tmp_path, capsys):
    finished = run(small(methods=["fedavg", "fednova"]), out=tmp_path / "run")
    arguments = ["replay", str(finished), "--grid", "network.links.5g.down=[2 Mbit/s, 4 Mbit/s]", "--method", "fednova"]
    assert main([*arguments, "--set", "network.links.5g.redraw=null", "-o", str(tmp_path / "many")]) == 0
    printed = capsys.readouterr().out
    assert "2 Mbit/s" in printed
    seconds = [
        json.loads((tmp_path / "many" / number / "summary.json").read_text())["methods"]["fednova"][0]["seconds"]
        for number in ("1", "2")
    ]
    assert seconds[0] > seconds[1]
    assert main(["replay", str(tmp_path), "--set", "network.links.5g.down=3 Mbit/s"]) == 2
    assert main(["replay", str(finished), "--set", "training.rounds=9"]) == 2
