"""Sequential and parallel engines train to the same bits, in this process and in worker processes."""

import logging
import os
import signal
import sys
from dataclasses import replace
from typing import ClassVar

import cloudpickle
import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.fedavg import CrossEntropy
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.recipe import METHODS
from edgefl.models.registry import MODELS
from edgefl.training.core import TrainingCore
from edgefl.training.engines.parallel import ParallelEngine, divided
from edgefl.training.engines.sequential import SequentialEngine
from edgefl.training.faults import TrainingFault
from edgefl.training.job_task import split
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import RESIDUAL, few_of, jobs_of, residual_model, same, tiny_model, train_round, train_rounds

ENTRIES = [
    *METHODS.names(),
    {"method": "fedadc", "variant": "blue"},
    {"method": "mixup", "local": {"momentum": 0.9, "batch": 2, "accumulate": 2}},
]
KEPT = [
    {"method": "fedavg", "local": {"optimizer": {"kind": kind, "state": "keep"}, "momentum": momentum}}
    for kind, momentum in (("adamw", 0), ("sgd", 0.9))
]
FEW = ["fedavg", "fedbr", "scaffold", "fedmlb", "moon"]
CPU = torch.device("cpu")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker process cannot import the tests


@pytest.mark.parametrize("entry", few_of(ENTRIES, FEW), ids=str)
@pytest.mark.usefixtures("worker_processes")
def test_worker_processes_and_any_order_give_the_sequential_bits(tiny, entry, caplog):
    method = tiny.method(entry, epochs=1)
    model = residual_model if method.name in RESIDUAL else tiny_model
    shared_pool(2)._first.result()
    reference = train_rounds(tiny.core(model=model()), method)
    with tiny.core("parallel", 2, model()) as core:
        assert same(reference, train_rounds(core, method, order=-1))
        engine = core._adapted_to(method.objective).engine
        assert method.submodels is not None or engine._pool is not None
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("entry", few_of([*ENTRIES, *KEPT], ["fedavg", "scaffold", "mixup", *KEPT]), ids=str)
def test_a_job_in_two_parts_has_the_bits_of_the_whole(tiny, entry):
    method = tiny.method(entry)
    with tiny.core(model=residual_model() if method.name in RESIDUAL else tiny_model()) as core:
        learner = core.learner(method)
        train_round(learner, jobs_of(core, method, 0))
        tasks = [learner._inputs(job).task for job in jobs_of(core, method, 1)]
        for task, whole in zip(tasks[:3], learner._engine.train(tasks[:3]), strict=True):
            (first,) = learner._engine.train([replace(task, until=task.steps - 1)])
            (rest,) = learner._engine.train([replace(task, begun=split(first)[1], sizes=first.batch_sizes)])
            (one, vectors), (other, others) = split(whole), split(rest)
            assert one.batch_sizes == other.batch_sizes
            assert vectors.keys() == others.keys()
            assert all(torch.equal(vectors[name], others[name]) for name in vectors)


def test_parts_of_jobs_end_together():
    """Two workers with five jobs of 76 steps: neither works 3 jobs' time, and no part begins before the first ends."""
    assert divided([76] * 5, 2) == ([2, 0, 1, 3, 4], {2: 38})
    order, first = divided([10] * 10, 8)
    assert sorted(order) == list(range(10))
    ends, done = [0] * 8, {}
    for index, part in [(index, first.get(index, 10)) for index in order] + [(k, 10 - f) for k, f in first.items()]:
        place = ends.index(min(ends))
        assert done.get(index, 0) <= ends[place]
        ends[place] = done[index] = ends[place] + part
    assert max(ends) == 13  # 100 steps on 8 workers are 12.5, undivided jobs 20


class Killed(CrossEntropy):
    """Ends the worker process that trains client 3, in the midst of its job."""

    client: ClassVar[frozenset[str]] = frozenset({"label_counts"})
    parent: int

    def loss(self, local, batch, context):
        if os.getpid() != self.parent and int(context.client["label_counts"].sum()) == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(local, batch, context)


@pytest.mark.usefixtures("worker_processes")
def test_a_worker_process_killed_in_the_midst_of_a_job_changes_no_bit(tiny, caplog):
    method, plain = tiny.method("fedavg"), tiny.method("fedavg")
    object.__setattr__(method, "objective", Killed(parent=os.getpid()))
    shared_pool(2)._first.result()
    with tiny.core("parallel", 2) as core:
        assert same(train_rounds(tiny.core(), plain), train_rounds(core, method))
    assert "training continues in this process" in caplog.text


def test_intra_op_threads_of_the_caller_change_no_bit():
    data = load_federated(Synthetic(clients=6, shape=(1, 28, 28), classes=4, train=300, test_images=100), seed=3)
    method = build_method("fedavg", LocalOptions(batch=32, lr=0.1))
    found, before = [], torch.get_num_threads()
    try:
        for threads, engine, workers in ((1, "sequential", None), (4, "sequential", None), (4, "parallel", 3)):
            torch.set_num_threads(threads)
            with TrainingCore.of(data, MODELS["cnn"](), 3, engine=engine, workers=workers) as core:
                found.append(train_rounds(core, method))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert same(found[0], found[1])
    assert same(found[0], found[2])


def tasks_of(tiny):
    """The tasks of a first round."""
    with tiny.core() as core:
        method = tiny.method("fedavg")
        learner = core.learner(method)
        return [learner._inputs(job).task for job in jobs_of(core, method, 0)]


class Averaging(Sgd):
    """Keeps what it received, as the first mean of its models."""

    def begin(self, received, vectors, options, steps):
        return {"mean": received}

    def update(self, parameters, gradient, memory, options, lr):
        memory["mean"].lerp_(parameters, 0.5)
        return super().update(parameters, gradient, memory, options, lr)


def test_training_leaves_the_start_and_the_skeleton_as_they_were(tiny):
    task, model = replace(tasks_of(tiny)[0], rule=Averaging()), tiny.model()
    start, own = task.start.clone(), [tensor.clone() for tensor in model.state_dict().values()]
    result = SequentialEngine(model, tiny.data()).train([task])[0]
    assert torch.equal(task.start, start)
    assert not torch.equal(result.final, start)
    # The skeleton's own numbers were never set, so some may be NaN.
    after = model.state_dict().values()
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(own, after, strict=True))


class Failing:
    """Data whose client 3 breaks in its third batch."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def batches(self, task):
        for step, batch in enumerate(self.inner.batches(task)):
            if task.client == 3 and step == 2:
                raise ValueError("torn page")
            yield batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_step_is_reported_with_method_client_round_and_step(tiny, workers):
    data, model = Failing(tiny.data()), tiny.model()
    engine = ParallelEngine(model, data, workers) if workers else SequentialEngine(model, data)
    with pytest.raises(TrainingFault, match="torn page") as told:
        engine.train(tasks_of(tiny))
    fault = told.value
    assert (fault.method, fault.client, fault.round, fault.step) == ("fedavg", 3, 0, 2)
    assert isinstance(fault.__cause__, ValueError)
