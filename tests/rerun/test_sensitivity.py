"""A run timed again under other conditions is what a run under them would have been, or says what it is not."""

import json
import shutil
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from edgefl.cli import main
from edgefl.cost.measure import Operator
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.fleet import load_profile
from edgefl.fleet.energy import compute_joules, transfer_joules
from edgefl.fleet.roofline import step_seconds
from edgefl.record.sensitivity import OWN, Condition
from edgefl.report import RunResult
from edgefl.report.page.sections import page
from edgefl.rerun.changes import at_bound
from edgefl.rerun.finished_run import ReplayedLearner
from edgefl.rerun.replay import CONDITIONS, write_sensitivity
from edgefl.rerun.verify import verify
from edgefl.training.faults import NotTrained

METHODS = [{"method": "fedadc", "overlap": True}, {"method": "fedbr", "scheduler": "gmbs"}]
WORK = [Operator("large", 3e9, 2e6, 4), Operator("small", 1e3, 1e3, 90)]


def spent(folder):
    """By (label, seed, devices, bandwidth): rounds, seconds, bytes and joules."""
    found = defaultdict(list)
    for row in pq.read_table(folder / "sensitivity.parquet").to_pylist():
        key = row["label"], row["seed"], row["devices"], row["bandwidth"]
        found[key].append([row[name] for name in ("round", "seconds", "bytes", "joules")])
    return {key: np.array(rows) for key, rows in found.items()}


def rounds_of(folder, label, seed=0):
    rows = pq.read_table(folder / label / f"seed-{seed}" / "rounds.parquet").to_pydict()
    bytes = np.cumsum(rows["bytes_down"]) + np.cumsum(rows["bytes_up"])
    return np.stack([rows["round"], rows["seconds"], bytes, np.cumsum(rows["joules"])], axis=1)


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A run in which a budget ended the training of some methods, timed again."""
    from edgefl.scenario.loading import check

    from ..small_runs import SMALL

    data = {**SMALL, "methods": METHODS, "stop": "budget", "budgets": {"bytes": 90_000}}
    folder = run(check(data), out=tmp_path_factory.mktemp("sensitivity") / "run")
    write_sensitivity(folder)
    return folder


@pytest.mark.full
def test_under_the_runs_own_conditions_nothing_changes(timed):
    found = spent(timed)
    assert len(found) == len(METHODS) * len(CONDITIONS)
    for label in ("fedadc", "fedbr"):
        assert np.array_equal(found[label, 0, "nominal", 1.0], rounds_of(timed, label))
    assert verify(timed) == []


def test_another_condition_is_what_a_run_there_comes_to(small, tmp_path):
    """Where no time decides: the scenario with 1.3 times the bandwidth, simulated anew."""
    links = {"kind": "uniform", "low": "5.2 Mbit/s", "high": "36.4 Mbit/s"}
    changes = {
        "network__topology__server": {"down": "130 Mbit/s", "up": "130 Mbit/s"},
        "network__links__5g__down": links,
        "network__links__5g__up": links,
    }
    common = {"methods": METHODS[:1], "stop": "budget", "budgets": {"bytes": 90_000}}
    here, there = run(small(**common), out=tmp_path / "here"), run(small(**common, **changes), out=tmp_path / "there")
    write_sensitivity(here, [OWN, Condition("nominal", 1.3)])
    found = spent(here)
    assert np.array_equal(found["fedadc", 0, "nominal", 1.0], rounds_of(here, "fedadc"))
    assert found["fedadc", 0, "nominal", 1.3] == pytest.approx(rounds_of(there, "fedadc"), rel=1e-9)
    assert verify(here) == []


def test_the_bounds_of_a_profile_are_the_bounds_of_its_seconds_and_joules():
    profile = load_profile("raspberry-pi-4")
    for bound in ("low", "nominal", "high"):
        fixed = at_bound(profile, bound)
        assert step_seconds(fixed, WORK) == step_seconds(profile, WORK, bound=bound)
        assert compute_joules(fixed, 2.0) == compute_joules(profile, 2.0, bound=bound)
        assert transfer_joules(fixed, "up", 2.0, 1e6) == transfer_joules(profile, "up", 2.0, 1e6, bound=bound)
        assert fixed.memory == profile.memory


@pytest.mark.full
def test_what_was_held_and_what_could_not_be_timed_is_told(timed, small, tmp_path):
    facts = json.loads(pq.read_schema(timed / "sensitivity.parquet").metadata[b"edgefl"])
    assert facts["held"] == {"fedbr": ["blocks"]}
    assert facts["refused"] == {}
    folder = run(small(training__selection="oort"), out=tmp_path / "oort")
    write_sensitivity(folder)
    assert json.loads(pq.read_schema(folder / "sensitivity.parquet").metadata[b"edgefl"])["held"] == {
        "fedavg": ["selection"]
    }


@pytest.mark.full
def test_a_method_that_would_train_something_else_is_left_out_with_the_reason(small, tmp_path, monkeypatch):
    folder = run(small(methods=["fedavg", "fedprox"]), out=tmp_path / "run")
    check = ReplayedLearner._check

    def away(self, key, round):
        if self._method == "fedprox" and round == 2:
            raise NotTrained("client 3 is away")
        check(self, key, round)

    monkeypatch.setattr(ReplayedLearner, "_check", away)
    write_sensitivity(folder)
    facts = json.loads(pq.read_schema(folder / "sensitivity.parquet").metadata[b"edgefl"])
    assert "after round 2 of 4, client 3 is away" in facts["refused"]["fedprox"]
    assert set(pq.read_table(folder / "sensitivity.parquet")["label"].to_pylist()) == {"fedavg"}
    assert verify(folder) == []
    told = page([RunResult(folder)])
    assert "fedprox is left out: " in told


@pytest.mark.full
def test_a_run_in_which_arrivals_decide_or_nothing_was_trained_is_refused(small, tmp_path):
    folder = run(small(protocol={"deadline": "90 ms"}), out=tmp_path / "late")
    with pytest.raises(UserError, match="deadline the aggregated updates depend on arrival times"):
        write_sensitivity(folder)
    untrained = run(small(), out=tmp_path / "untrained", train=False)
    with pytest.raises(UserError, match="no method can be re-timed"):
        write_sensitivity(untrained)
    assert not (untrained / "sensitivity.parquet").exists()


@pytest.mark.full
def test_the_command_says_whether_the_winner_stays_and_a_page_refuses_the_file_of_another_run(timed, capsys, tmp_path):
    assert main(["replay", str(timed), "--sensitivity"]) == 0
    printed = capsys.readouterr().out
    assert "First at 30 %: " in printed
    assert "fedbr decides on blocks by time" in printed
    assert main(["replay", str(timed), "--sensitivity", "--set", "stop=rounds"]) == 2
    copy = tmp_path / "copy"
    shutil.copytree(timed, copy)
    summary = copy / "summary.json"
    summary.write_text(summary.read_text() + "\n")
    with pytest.raises(UserError, match="create it again: edgefl replay"):
        page([RunResult(copy)])
