"""A long run holds no more than a short one, and a large cohort trains in chunks."""

from __future__ import annotations

import ctypes
import gc
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import few_of, jobs_of, train_round

CLIENTS, COHORT, EARLY, LATE = 12, 4, 100, 500

GROWTH = 8e6
"""Bytes that the process may come to hold between rounds 100 and 500; one more model a round would be over 240 MB."""

LARGE_COHORT = """
import sys
import torch
from edgefl.methods.build import build_method
from tests.benchmarks.training import Case, federated, peak_bytes

case = Case("cnn", (1, 28, 28), cohort=1000, batch=32, steps=1, clients=1000)
device = torch.device("cpu")
with case.core(case.data(device), sys.argv[1]) as core:
    turn = federated(case, core, build_method("fedavg", case.local))
    turn()
    turn()
print(peak_bytes(device))
"""


def held() -> int:
    """Bytes that the process needs: without those that glibc keeps for later, which vary by tens of megabytes."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pytest.skip("only glibc can be told to give back what is free")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def tensors_alive() -> int:
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("engine", "entry"), few_of([("parallel", "scaffold"), ("batched", "fedbr")], [("sequential", "feddyn")])
)
@pytest.mark.usefixtures("worker_processes")
def test_as_many_tensors_live_after_60_rounds_as_after_20(tiny, engine, entry):
    method = tiny.method(entry, steps=1, epochs=None, batch=4)
    with tiny.core(engine, 2) as core:
        if engine == "parallel":
            shared_pool(2)._first.result()  # worker processes, and the memory shared with them, from the start
        learner = core.learner(method)
        for round in range(60):
            train_round(learner, jobs_of(core, method, round, (0, 1)))
            if round == 20:
                early = tensors_alive()
        assert torch.isfinite(learner.model(60)).all()
        assert tensors_alive() <= early


@pytest.mark.release
@pytest.mark.parametrize("engine", ["parallel", "batched"])
def test_a_cohort_of_a_thousand_small_cnns_stays_within_4_gib(engine):
    done = subprocess.run(
        [sys.executable, "-c", LARGE_COHORT, engine],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    print(f"{engine}: {int(done.stdout) / 2**30:.2f} GiB")
    assert int(done.stdout) < 4 * 2**30


@pytest.mark.release
@pytest.mark.parametrize(
    ("engine", "entry"), [("parallel", "fedavg"), ("parallel", "scaffold"), ("batched", "moon"), ("batched", "fedavg")]
)
def test_the_process_does_not_grow_over_500_rounds(engine, entry):
    data = load_federated(Synthetic(clients=CLIENTS, shape=(1, 16, 16), train=CLIENTS * 8, test_images=16), 0)
    method = build_method(entry, LocalOptions(steps=1, batch=8, lr=0.01))
    with TrainingCore.of(data, MODELS["cnn"](width=32), 0, engine=engine, workers=2) as core:
        learner = core.learner(method)
        depth = method.objective.adapt(core.model).depth
        assert 4 * len(learner.model(0)) * (LATE - EARLY) > 5 * GROWTH
        last: dict[int, JobId] = {}
        for round in range(LATE):
            cohort = [(round * COHORT + place) % CLIENTS for place in range(COHORT)]
            jobs = [JobId(entry, 0, client, round) for client in cohort]
            for job in jobs:
                before = last.get(job.client) if method.state is not None else None
                learner.submit(TrainingJob(job, round, round, depth, 1, before))
                last[job.client] = job
            learner.aggregate(round, jobs, round)
            learner.evaluate(round + 1)
            if round == EARLY:
                early = held()
        assert torch.isfinite(learner.model(LATE)).all()
        tensors, facts = learner.snapshot()
        assert len(facts["states"]) == (CLIENTS if method.state is not None else 0)
        assert len(facts["versions"]) == 1
        del tensors
        grown = held() - early
        print(f"{engine}, {entry}: {grown / 1e6:+.1f} MB")
        assert grown < GROWTH
