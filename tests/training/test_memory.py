"""Nothing grows, however long a run is."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor

from edgefl.training.job import JobId
from edgefl.training.parallel.worker_pool import shared_pool

pytestmark = pytest.mark.usefixtures("worker_processes")

ROUNDS = 500


def tensors_alive() -> int:
    gc.collect()
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("engine", "entry"),
    [
        ("parallel", "scaffold"),
        pytest.param("sequential", "feddyn", marks=pytest.mark.release),
        pytest.param("batched", "fedbr", marks=pytest.mark.release),
    ],
)
def test_as_many_tensors_live_after_500_rounds_as_after_20(tiny, engine, entry):
    method = tiny.method(entry, steps=1, epochs=None, batch=4)
    with tiny.core(engine, 2) as core:
        if engine == "parallel":
            shared_pool(2).wait()  # worker processes, and the memory shared with them, from the start
        learner = core.learner(method)
        depth = method.objective.adapt(core.model).depth
        for round in range(ROUNDS):
            jobs = [JobId("m", 3, client, round) for client in (0, 1)]
            for job in jobs:
                before = round - 1 if method.state is not None and round else None
                learner.submit(tiny.job(job.client, round, dispatch=round, alpha=depth, previous=before, steps=1))
            learner.aggregate(round, jobs, round)
            if round == 20:
                early = tensors_alive()
        assert torch.isfinite(learner.model(ROUNDS)).all()
        assert tensors_alive() <= early
