"""Successive halving and proposals find what is best, spend what they promise, and go on after an interruption."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app, main
from edgefl.errors import UserError
from edgefl.experiment.pausing import Pause, add_pause
from edgefl.scenario.sections import HalvingSpec, SweepSpec
from edgefl.sweep import jobs as jobs_module
from edgefl.sweep.jobs import Job
from edgefl.sweep.searching import halving, proposals
from edgefl.sweep.sweeping import figures_by_method


def job_of(setting, label, seed=0, rounds=100):
    return Job(
        f"{label}-{setting['x']}-{seed}", setting, seed, {"training": {"rounds": rounds}}, (label,), "", "", True
    )


def race(steps, value):
    """Answers a search with a value for each job; the steps' jobs."""
    told = []
    try:
        jobs = next(steps)
        while True:
            told.append(jobs)
            jobs = steps.send([{job.methods[0]: [{"accuracy_final": value(job)}]} for job in jobs])
    except StopIteration:
        return told


def test_halving_keeps_the_best_third_of_each_method_and_gives_them_three_times_as_much():
    candidates = [[job_of({"x": x}, label, seed) for seed in (0, 1)] for label in "ab" for x in range(9)]
    best = {"a": 5, "b": 2}
    told = race(halving(candidates, HalvingSpec(least=4)), lambda job: -abs(job.setting["x"] - best[job.methods[0]]))
    assert [len(jobs) for jobs in told] == [36, 12, 4]
    assert [{job.pause and job.pause.rounds for job in jobs} for jobs in told] == [{4}, {12}, {None}]
    assert {(job.methods[0], job.setting["x"]) for job in told[-1]} == {("a", 5), ("b", 2)}


def test_settings_of_different_lengths_race_until_the_longest_is_over():
    candidates = [[job_of({"x": x}, "a", rounds=4 if x == 0 else 40)] for x in range(9)]
    told = race(halving(candidates, HalvingSpec(least=5)), lambda job: job.setting["x"])
    assert [len(jobs) for jobs in told] == [9, 3, 1]
    assert [jobs[0].pause and jobs[0].pause.rounds for jobs in told] == [5, 15, None]


def test_a_setting_that_failed_is_worse_than_any():
    candidates = [[job_of({"x": x}, "a")] for x in range(2)]
    told = race(halving(candidates, HalvingSpec(least=1, factor=2)), lambda job: 0.0 if job.setting["x"] else None)
    assert [job.setting["x"] for job in told[-1]] == [1]


def test_a_job_that_failed_before_its_pause_has_no_figures_of_an_earlier_one(tmp_path):
    reached, later = Pause(rounds=2), Pause(rounds=4)
    job = replace(job_of({"x": 1}, "a"), pause=later)
    folder = tmp_path / "a" / f"seed-{job.seed}"
    folder.mkdir(parents=True)
    add_pause(reached.name, {"seed": job.seed, "stop": "paused", "accuracy_final": 0.9}, folder / "pauses.json")
    assert figures_by_method(job, tmp_path) == {}
    assert figures_by_method(replace(job, pause=reached), tmp_path)["a"][0]["accuracy_final"] == 0.9
    assert figures_by_method(replace(job, pause=None), tmp_path)["a"][0]["accuracy_final"] == 0.9


def proposed(value, **options):
    spec = SweepSpec.model_validate({"ranges": {"x": {"low": 0.001, "high": 10, "log": True}}, "optuna": options})
    steps = proposals(spec, spec.optuna, ["a"], lambda setting, label: [job_of(setting, label)])
    return [job.setting["x"] for jobs in race(steps, value) for job in jobs]


def test_proposals_repeat_themselves_and_gather_about_the_best():
    pytest.importorskip("optuna", reason="optuna is not installed")
    from math import log10

    def value(job):
        return 1 - abs(log10(job.setting["x"]) + 1) / 4  # best at 0.1

    found = proposed(value, trials=60)
    assert len(found) == 60
    assert found == proposed(value, trials=60)
    assert found != proposed(value, trials=60, seed=1)
    # Numbers drawn at random, as the first ten are, lie a decade from the best on average.
    later = found[24:]
    assert sum(abs(log10(x) + 1) for x in later) / len(later) < 0.5


def test_without_optuna_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UserError, match=r"-e '\.\[optuna\]'"):
        proposed(lambda job: 0.0, trials=1)


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"ranges": {"x": {"low": 0, "high": 1}}},
        {"grid": {"x": [1]}, "optuna": {"trials": 2}, "halving": {"least": 1}},
        {"ranges": {"x": {"low": 0, "high": 1, "log": True}}, "optuna": {"trials": 2}},
    ],
)
def test_sections_that_make_no_sense_are_refused(section):
    with pytest.raises(ValueError, match=r"expected|leave out|remove"):
        SweepSpec.model_validate(section)


LEARNS = ["--set", "training.cohort=8", "--set", "data.partition={kind: iid}", "--set", "training.local.epochs=3"]
LRS = [1e-9, 0.2, 1e-8, 1e-7]
HALVING = {"grid": {"training.local.lr": LRS}, "halving": {"least": 2, "factor": 2, "metric": "best"}}


@pytest.fixture
def command(small, tmp_path, monkeypatch):
    """The sweep command on the small scenario with a section of its own, jobs in this process."""
    state = SimpleNamespace(ran=[], stop_after=None, path=str(tmp_path / "small.yaml"))

    def in_this_process(jobs, folder, processes, done):
        for job in jobs:
            if state.stop_after == len(state.ran):
                raise KeyboardInterrupt
            state.ran.append((job.setting["training.local.lr"], job.pause and job.pause.rounds))
            done(job, jobs_module.run_job(job, folder / job.id))

    monkeypatch.setattr("edgefl.sweep.sweeping.run_all", in_this_process)
    small()
    path = tmp_path / "small.yaml"
    text = path.read_text()

    def invoke(section, out, *more, split="validation"):
        path.write_text(f"{text}\nsweep: {json.dumps(section)}\nevaluation: {{split: {split}}}\n")
        arguments = ["sweep", str(path), "--set", "training.rounds=6", *LEARNS, "--out", str(tmp_path / out), *more]
        return CliRunner().invoke(app, arguments)

    state.invoke = invoke
    return state


@pytest.mark.full
def test_the_command_halves_goes_on_after_an_interruption_and_names_the_best(command, tmp_path):
    whole = command.invoke(HALVING, "whole")
    assert whole.exit_code == 0, whole.output
    assert "training.local.lr=0.2" in whole.output
    asked = list(command.ran)
    assert asked[:4] == [(lr, 2) for lr in LRS]
    assert [pause for _, pause in asked[4:]] == [4, 4, None]
    assert asked[-1] == (0.2, None)
    rows = pq.read_table(tmp_path / "whole" / "sweep.parquet").to_pylist()
    assert {row["training.local.lr"]: (row["stop"], row["rounds"]) for row in rows if row["rounds"] > 4} == {
        0.2: ("rounds", 6)
    }

    for stop in (5, None):  # killed, then left to end
        command.ran.clear()
        command.stop_after = stop
        command.invoke(HALVING, "killed")
    assert (tmp_path / "killed" / "sweep.parquet").read_bytes() == (tmp_path / "whole" / "sweep.parquet").read_bytes()


GRID = "training.local.lr=" + ",".join(str(lr) for lr in LRS)


@pytest.mark.full
def test_how_to_search_may_be_set_beside_a_grid_which_replaces_the_scenarios_section(command, tmp_path):
    halved = ["--set", "sweep.halving={least: 2, factor: 2, metric: best}", "--grid", "training.local.lr=1e-9,0.2"]
    other = {"grid": {"training.local.lr": [0.3]}, "random": 1, "optuna": None}
    told = command.invoke(other, "beside", *halved)
    assert told.exit_code == 0, told.output
    assert command.ran == [(1e-9, 2), (0.2, 2), (0.2, None)]


@pytest.mark.parametrize("change", ["sweep.grid={training.cohort: [2]}", "sweep={grid: {training.cohort: [2]}}"])
def test_values_to_try_are_said_once(command, capsys, change):
    assert main(["sweep", command.path, "--set", change, "--grid", GRID]) == 2
    assert "--grid also sets the values to try" in capsys.readouterr().err


@pytest.mark.full
def test_proposals_come_from_the_scenarios_section(command, tmp_path):
    pytest.importorskip("optuna", reason="optuna is not installed")
    section = {
        "ranges": {"training.local.lr": {"low": 1e-3, "high": 0.5, "log": True}},
        "optuna": {"trials": 2, "together": 2},
    }
    result = command.invoke(section, "out")
    assert result.exit_code == 0, result.output
    assert len(pq.read_table(tmp_path / "out" / "sweep.parquet")) == 2
    again = command.invoke(section, "out")
    assert (again.exit_code, len(command.ran)) == (0, 2)


def test_a_search_never_looks_at_the_test_images(command):
    result = command.invoke(HALVING, "out", split="test")
    assert isinstance(result.exception, UserError)
    assert "evaluation.split=validation" in str(result.exception)
