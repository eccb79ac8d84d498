"""A sweep over two real Ray nodes yields the local processes' table, also when a worker is killed at work."""

import json
import os
import signal
import sys

import pytest

from edgefl.record.events import Listener
from edgefl.sweep import jobs as jobs_module
from edgefl.sweep.jobs import jobs_of, run_job, settings_of
from edgefl.sweep.over_ray import run_there
from edgefl.sweep.sweeping import sweep

pytestmark = pytest.mark.full  # the processes of a cluster

GRID = {"training.local.lr": [0.05, 0.1]}
CHANGES = ["training.rounds=3", "evaluation.split=validation", "methods=[fedavg, fedbr]"]


@pytest.fixture(scope="module")
def ray():
    """A connection to two nodes with a processor each."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    store = 100 * 2**20
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": store}
    )
    made.add_node(num_cpus=1, object_store_memory=store)
    try:
        ray.init(address=made.address, log_to_driver=False)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield ray
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def jobs(small, tmp_path):
    small()
    return jobs_of(str(tmp_path / "small.yaml"), CHANGES, settings_of(GRID), seeds=[0])


@pytest.fixture
def reference(jobs, tmp_path):
    """The table of the same jobs, run in this process."""
    out = tmp_path / "here"
    for job in jobs:
        assert run_job(job, out / "jobs" / job.id) is None
    (out / "sweep.json").write_text(json.dumps({"jobs": [job.id for job in jobs]}))
    sweep(jobs, out)
    return (out / "sweep.parquet").read_bytes()


@pytest.mark.extras
def test_two_nodes_yield_the_same_table_and_leave_no_sign(ray, jobs, reference, tmp_path):
    told = []
    result = sweep(jobs, tmp_path / "out", cluster=True, done=lambda job, failure, left: told.append((failure, left)))
    assert (result.failures, told) == ({}, [(None, 1), (None, 0)])
    assert (tmp_path / "out" / "sweep.parquet").read_bytes() == reference
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["jobs", "sweep.json", "sweep.parquet"]


def dies_once(job, place, sign, files):
    """A worker that is killed while it runs its first job."""
    marker = sign.parent.parent / "killed"
    if not marker.exists():

        class Deadly(Listener):
            def round_ended(self, row):
                if row.round == 2:
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        jobs_module.run(
            jobs_module.scenario_of(job), out=place, methods=job.methods, device="cpu", engine="sequential",
            listeners=[Deadly()],
        )  # fmt: skip
    return run_there(job, place, sign, files)


@pytest.mark.extras
def test_a_killed_workers_job_is_gone_on_with(ray, jobs, reference, tmp_path, monkeypatch):
    monkeypatch.setattr("edgefl.sweep.over_ray.run_there", dies_once)
    result = sweep(jobs, tmp_path / "out", cluster=True, processes=1)
    assert (tmp_path / "killed").exists()
    assert result.failures == {}
    assert (tmp_path / "out" / "sweep.parquet").read_bytes() == reference


def test_a_worker_without_the_sweeps_disk_gets_and_returns_the_run_directory(jobs, tmp_path):
    job = jobs[0]
    place, absent = tmp_path / "out" / job.id, tmp_path / "out" / "no-sign"
    failure, files = run_there(job, place, absent, {})
    assert failure is None
    assert files is not None
    assert not place.exists()
    assert run_there(job, place, absent, files)[1] == files
