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
from edgefl.training.engines.parallel import ParallelEngine
from edgefl.training.engines.sequential import SequentialEngine
from edgefl.training.faults import TrainingFault
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import RESIDUAL, few_of, jobs_of, residual_model, same, tiny_model, train_rounds

ENTRIES = [
    *METHODS.names(),
    {"method": "fedadc", "variant": "blue"},
    {"method": "mixup", "local": {"momentum": 0.9, "batch": 2, "accumulate": 2}},
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
