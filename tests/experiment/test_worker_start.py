"""Worker processes begin ahead only where a run will have enough for them to do."""

from __future__ import annotations

import sys

import pytest

from edgefl.experiment import run
from edgefl.experiment.run import ENOUGH_STEPS, begin_workers


@pytest.fixture
def begun(monkeypatch):
    sizes = []
    monkeypatch.setattr("edgefl.training.parallel.worker_pool.shared_pool", sizes.append)
    monkeypatch.setattr("edgefl.training.processors.cores", lambda: 2)
    monkeypatch.setattr("edgefl.training.engine_spec.cores", lambda: 2)
    return sizes


def test_they_begin_where_as_many_local_steps_are_to_come(small, begun):
    # 40 images a client in batches of 16 are 3 steps, for 3 clients: 9 a round.
    rounds = -(-ENOUGH_STEPS // 9)
    begin_workers(small(training__rounds=rounds - 1), "cpu", 1)
    assert begun == []
    begin_workers(small(training__rounds=rounds), "cpu", 1)
    assert begun == [2]
    begin_workers(small(training__rounds=rounds // 4 + 1), "cpu", 4)
    assert begun == [2, 2]


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_they_begin_for_the_parallel_engine_alone(small, begun, engine):
    begin_workers(small(training__rounds=10_000, training__engine=engine), "cpu", 1)
    assert begun == []


def test_a_run_asks_before_it_reads_its_data_and_only_if_it_trains(small, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        sys.modules["edgefl.experiment.run"], "begin_workers", lambda scenario, *rest: asked.append(rest)
    )
    scenario = small(training__rounds=1, methods=["fedavg", "fedprox"], seeds=[0, 1])
    run(scenario, out=tmp_path / "run", device="cpu")
    run(scenario, out=tmp_path / "timed", train=False)
    assert asked == [("cpu", 4)]
