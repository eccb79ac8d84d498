"""Runs that worker processes train: the same files as one process writes, also after an interruption or a fault."""

from __future__ import annotations

import errno
import json

import pytest

from edgefl.experiment import NotWritten, RunsFailed, resume, run
from edgefl.experiment.journal import Journal
from edgefl.hardware import cores
from edgefl.rerun.verify import verify
from edgefl.training.engines import parallel
from edgefl.training.engines.parallel import PoolTraining
from edgefl.training.job_inputs import JobResolver
from edgefl.training.parallel.worker_pool import shared_pool

from ..small_runs import CELLS, Stop, tree

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("worker_processes"),
    pytest.mark.skipif(cores() < 2, reason="one core: engines train one job after another"),
]

METHODS = ["fedavg", {"method": "fedadc", "overlap": True}, "fedbr", "scaffold"]
WORLDS = {
    "synchronous": {"methods": METHODS},
    "asynchronous": {
        "methods": ["fedavg", "fedbr"],
        "protocol": {"kind": "asynchronous", "buffer": 2, "concurrency": 4},
    },
    "hierarchical": {
        "methods": ["fedavg", "scaffold"],
        "protocol": {"kind": "hierarchical"},
        "network__topology": CELLS,
    },
}


def with_workers(monkeypatch, *, from_the_first_job_on: bool) -> list[int]:
    """Whether worker processes train; returns how many jobs they are given in each call."""
    monkeypatch.setattr(parallel, "SETTLED_SECONDS", 0 if from_the_first_job_on else None)
    # Groups of rows end within rounds, too.
    monkeypatch.setattr("edgefl.record.tables._ROW_GROUP", 100)
    jobs, train = [], PoolTraining.train

    def counted(self, tasks, *rest):
        jobs.append(len(tasks))
        return train(self, tasks, *rest)

    monkeypatch.setattr(PoolTraining, "train", counted)
    if from_the_first_job_on:
        shared_pool(cores())._first.result()
    return jobs


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_that_worker_processes_train_writes_the_same_files(small, tmp_path, monkeypatch, world):
    scenario = small(training__rounds=6, data__test=300, **WORLDS[world])
    assert not with_workers(monkeypatch, from_the_first_job_on=False)
    expected = tree(run(scenario, out=tmp_path / "expected", engine="parallel"))

    jobs = with_workers(monkeypatch, from_the_first_job_on=True)
    assert tree(run(scenario, out=tmp_path / "run", engine="parallel")) == expected
    assert len(jobs) >= 3 * len(scenario.methods)

    with pytest.raises(KeyboardInterrupt):
        run(scenario, out=tmp_path / "again", engine="parallel", listeners=[Stop(5)])
    assert tree(resume(tmp_path / "again")) == expected
    assert verify(tmp_path / "again") == []


def runs_of(folder) -> list:
    summary = json.loads((folder / "summary.json").read_text())
    return [entry for entries in summary["methods"].values() for entry in entries]


def test_a_part_that_fails_before_its_job_is_needed_fails_alone(small, tmp_path, monkeypatch):
    with_workers(monkeypatch, from_the_first_job_on=True)
    resolve = JobResolver.resolve

    def failing(self, job, *received):
        if job.id.method == "fedavg" and job.round == 3:
            raise KeyError("lost")
        return resolve(self, job, *received)

    monkeypatch.setattr(JobResolver, "resolve", failing)
    scenario = small(training__rounds=6, methods=["fedavg", "fedprox"])
    with pytest.raises(RunsFailed, match=r"fedavg.*lost"):
        run(scenario, out=tmp_path / "run", engine="parallel")
    assert [entry["stop"]["reason"] for entry in runs_of(tmp_path / "run")] == ["fault", "rounds"]


def test_a_full_disk_is_no_fault_of_a_method(small, tmp_path, monkeypatch):
    with_workers(monkeypatch, from_the_first_job_on=True)
    commit = Journal.commit

    def full(self):
        if self.rounds >= 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        commit(self)

    scenario = small(training__rounds=14)
    expected = tree(run(scenario, out=tmp_path / "expected", engine="parallel"))
    with monkeypatch.context() as broken:
        broken.setattr(Journal, "commit", full)
        with pytest.raises(NotWritten, match="No space left"):
            run(scenario, out=tmp_path / "run", engine="parallel")
    assert tree(resume(tmp_path / "run")) == expected
