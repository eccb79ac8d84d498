"""Proposals find what is best, and go on after an interruption."""

import json
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgefl.cli.entry import app, main
from edgefl.errors import UserError
from edgefl.scenario.sections import SweepSpec
from edgefl.sweep import jobs as jobs_module
from edgefl.sweep.jobs import Job
from edgefl.sweep.searching import proposals


def job_of(setting, label, seed=0, rounds=100):
    return Job(
        f"{label}-{setting['x']}-{seed}", setting, seed, {"training": {"rounds": rounds}}, (label,), "", train=True
    )


def race(steps, value):
    """Answers a search with a value for each job; the steps' jobs."""
    told = []
    try:
        jobs = next(steps)
        while True:
            told.append(jobs)
            jobs = steps.send([{job.methods[0]: {"accuracy_final": value(job)}} for job in jobs])
    except StopIteration:
        return told


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
        {"grid": {"x": [1]}, "optuna": {"trials": 2}, "random": 1},
        {"ranges": {"x": {"low": 0, "high": 1, "log": True}}, "optuna": {"trials": 2}},
    ],
)
def test_sections_that_make_no_sense_are_refused(section):
    with pytest.raises(ValueError, match=r"expected|leave out|remove"):
        SweepSpec.model_validate(section)


LEARNS = ["--set", "training.cohort=8", "--set", "data.partition={kind: iid}", "--set", "training.local.epochs=3"]
LRS = [1e-9, 0.2, 1e-8, 1e-7]
GRID = "training.local.lr=" + ",".join(str(lr) for lr in LRS)
PROPOSALS = {
    "ranges": {"training.local.lr": {"low": 1e-3, "high": 0.5, "log": True}},
    "optuna": {"trials": 4, "together": 2},
}


@pytest.fixture
def command(small, tmp_path, monkeypatch):
    """The sweep command on the small scenario with a section of its own, jobs in this process."""
    state = SimpleNamespace(ran=[], stop_after=None, path=str(tmp_path / "small.yaml"))

    def in_this_process(jobs, folder, processes, done):
        for job in jobs:
            if state.stop_after == len(state.ran):
                raise KeyboardInterrupt
            state.ran.append(job.setting["training.local.lr"])
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


@pytest.mark.parametrize("change", ["sweep.grid={training.cohort: [2]}", "sweep={grid: {training.cohort: [2]}}"])
def test_values_to_try_are_said_once(command, capsys, change):
    assert main(["sweep", command.path, "--set", change, "--grid", GRID]) == 2
    assert "--grid also sets the values to try" in capsys.readouterr().err


@pytest.mark.full
def test_proposals_go_on_after_an_interruption_and_the_best_is_named(command, tmp_path):
    pytest.importorskip("optuna", reason="optuna is not installed")
    whole = command.invoke(PROPOSALS, "whole")
    assert whole.exit_code == 0, whole.output
    proposed = list(command.ran)
    rows = pq.read_table(tmp_path / "whole" / "sweep.parquet").to_pylist()
    assert [row["training.local.lr"] for row in rows] == proposed
    best = max(rows, key=lambda row: row["accuracy_final"])["training.local.lr"]
    assert f"training.local.lr={best}" in whole.output
    assert command.invoke(PROPOSALS, "whole").exit_code == 0
    assert command.ran == proposed  # nothing runs again

    for stop in (3, None):  # killed, then left to end
        command.ran.clear()
        command.stop_after = stop
        command.invoke(PROPOSALS, "killed")
    assert (tmp_path / "killed" / "sweep.parquet").read_bytes() == (tmp_path / "whole" / "sweep.parquet").read_bytes()


def test_a_search_never_looks_at_the_test_images(command):
    pytest.importorskip("optuna", reason="optuna is not installed")
    result = command.invoke(PROPOSALS, "out", split="test")
    assert isinstance(result.exception, UserError)
    assert "evaluation.split=validation" in str(result.exception)
