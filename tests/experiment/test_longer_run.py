"""A finished run that goes on has the bytes of a run that had the later end from its start."""

from __future__ import annotations

import copy
import shutil

import pytest

from edgefl.errors import UserError
from edgefl.experiment import go_on, resume, run
from edgefl.record import RunPaths, names
from edgefl.report import RunResult
from edgefl.scenario import with_overrides
from edgefl.scenario.loading import check

from ..small_runs import SMALL, Advice, Stop, tree

OVERLAPPED = {"method": "fedadc", "overlap": True, "as": "overlapped"}
ASYNC = {"kind": "buffer", "size": 2, "concurrency": 4}


@pytest.fixture(autouse=True)
def _checkpoints(monkeypatch):
    monkeypatch.setattr("edgefl.experiment.checkpoints.CHECKPOINT_EVERY", 2)


def scenario_with(rounds, *changes):
    data = {**copy.deepcopy(SMALL), "seeds": [4, 5], "methods": ["scaffold", OVERLAPPED], "keep_models": "clients"}
    data["training"] |= {"rounds": rounds, "engine": {"kind": "sequential"}}
    data["training"]["local"] |= {"lr_decay": 0.7}
    return with_overrides(check(data), changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The runs of six rounds and of four; nobody writes into them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgefl.experiment.checkpoints.CHECKPOINT_EVERY", 2)
        return [run(scenario_with(rounds), out=tmp_path_factory.mktemp("made") / "run") for rounds in (6, 4)]


@pytest.fixture
def whole(made):
    return made[0]


@pytest.fixture
def finished(made, tmp_path):
    return shutil.copytree(made[1], tmp_path / "run")


def test_more_rounds_give_the_bytes_of_a_run_that_had_them_from_the_start(finished, whole):
    advice = Advice()
    go_on(finished, ["training.rounds=6"], listeners=[advice])
    assert advice.texts == ["the run goes on from the checkpoint of round 2"]
    assert tree(finished) == tree(whole)


def test_without_a_checkpoint_it_is_trained_from_its_start(finished, whole):
    (finished / "scaffold" / "seed-4" / names.CHECKPOINT).unlink()
    advice = Advice()
    go_on(finished, ["training.rounds=6"], listeners=[advice])
    assert advice.texts == ["the run kept no checkpoint, so it is trained from its start; the result is the same"]
    assert tree(finished) == tree(whole)


def test_it_can_be_interrupted_and_the_finished_run_stays_readable(finished, whole):
    before = tree(finished)
    with pytest.raises(KeyboardInterrupt):
        go_on(finished, ["training.rounds=6"], listeners=[Stop(9)])
    now = tree(finished)
    assert {name: now[name] for name in before} == before
    with pytest.raises(UserError, match=r"contains an interrupted run; to continue: edgefl simulate --resume \S*run$"):
        go_on(finished, ["training.rounds=8"])
    assert tree(resume(finished)) == tree(whole)


@pytest.mark.parametrize(
    "changes",
    [
        ["protocol={kind: asynchronous, concurrency: 4, buffer: 2}", "evaluation.every=4"],
        pytest.param(["protocol={kind: asynchronous, concurrency: 3, buffer: 1, ahead: 4}"], marks=pytest.mark.full),
    ],
)
def test_asynchronous_runs_go_on(tmp_path, changes):
    go_on(
        run(scenario_with(5, *changes), out=tmp_path / "short"), ["training.rounds=9"], listeners=[advice := Advice()]
    )
    assert advice.texts == ["the run goes on from the checkpoint of round 4"]
    assert tree(tmp_path / "short") == tree(run(scenario_with(9, *changes), out=tmp_path / "whole"))


def test_a_run_that_ended_at_a_budget_goes_on(tmp_path):
    limit = "budgets.bytes=60 kB"
    short = run(scenario_with(20, "stop=budget", limit), out=tmp_path / "short")
    ended = RunResult(short).results["scaffold"][0]
    assert (ended.stop.reason, 3 <= ended.rounds < 8) == ("bytes", True)
    go_on(short, ["stop=rounds", "training.rounds=8"], listeners=[advice := Advice()])
    assert advice.texts == ["the run goes on from the checkpoint of round 2"]
    whole = run(scenario_with(8, limit), out=tmp_path / "whole")
    assert tree(short) == tree(whole)


def test_where_the_former_end_changed_earlier_rounds_it_is_trained_from_its_start(tmp_path):
    short = run(scenario_with(4, "budgets.bytes=20 kB"), out=tmp_path / "short")
    go_on(short, ["training.rounds=5", "budgets.bytes=1 MB"], listeners=[advice := Advice()])
    assert advice.texts[1] == "the end of the finished run changed its earlier rounds: it is trained from its start"
    assert tree(short) == tree(run(scenario_with(5, "budgets.bytes=1 MB"), out=tmp_path / "whole"))


@pytest.mark.parametrize(
    "changes",
    [
        ["training.local.lr={kind: cosine, value: 0.1}"],
        ["methods.0.server_lr={kind: linear, value: 1}", "training.local.optimizer={kind: adam, state: average}"],
    ],
)
def test_a_rate_that_ends_with_the_run_refuses_more_rounds(tmp_path, changes):
    short = run(scenario_with(2, "methods=[{method: fedavg}]", *changes), out=tmp_path / "run")
    with pytest.raises(
        UserError, match=r"training\.rounds: a learning rate ends at training\.rounds: more rounds need a new run"
    ):
        go_on(short, ["training.rounds=3"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["training.rounds=3"], "training.rounds: expected at least the 4 rounds of the finished run"),
        (["training.rounds=4"], "expected more rounds"),
        (["training.rounds=8", "training.local.lr=1"], "a run that goes on keeps its scenario"),
        (["training.rounds=8", "budgets.seconds=1"], "budgets: expected no smaller budgets"),
    ],
)
def test_other_changes_are_refused_and_the_run_stays_as_it_is(finished, changes, reason):
    before = tree(finished)
    with pytest.raises(UserError, match=reason):
        go_on(finished, changes)
    assert tree(finished) == before
    assert not RunPaths(finished).longer.exists()
