"""Clients side by side come to what they come to one after another, within rounding."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.methods.objectives.base import Batch
from edgefl.methods.recipe import METHODS
from edgefl.methods.rules.sgd import Sgd
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import BatchNorm
from edgefl.models.registry import initial_vector
from edgefl.models.residual import basic_block
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.training.batched.chunk_width import ChunkWidths, padded
from edgefl.training.batched.engine import BatchedEngine
from edgefl.training.batched.replay import DirectReplay
from edgefl.training.client_data import ClientData
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.faults import TrainingFault
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.local_training import train_job
from edgefl.training.sequential import SequentialEngine
from edgefl.validation import validated

CPU = torch.device("cpu")
LOCAL = LocalOptions(epochs=2, batch=4, lr=0.05, weight_decay=1e-3, clip_norm=5.0)
ENTRIES = [
    *METHODS.names(),
    {"method": "fedadc", "variant": "double"},
    {"method": "fedavg", "local": {"momentum": 0.9}},
]


def residual_model() -> BlockModel:
    blocks = {
        "conv1": nn.Sequential(Conv2d(1, 8, 3), BatchNorm(8), nn.ReLU()),
        "layer1": basic_block(8, 16, 2, BatchNorm),
        "layer2": basic_block(16, 16, 1, BatchNorm),
        "fc": Classifier(Linear(16, 3, slim_outputs=False), pool=True),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


class Wide:
    """Data and weights in another precision."""

    def __init__(self, inner, dtype):
        self.inner, self.dtype = inner, dtype

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def side_by_side(self, tasks):
        return None

    def batches(self, task):
        return (Batch(batch.inputs.to(self.dtype), batch.labels) for batch in self.inner.batches(task))


def tasks_of(tiny, entry, dtype):
    """The jobs of a second round, of clients with different numbers of steps and last minibatches of other sizes."""
    method = build_method(entry, LOCAL)
    caught = []
    with TrainingCore(tiny.data(), residual_model(), 3, engine="sequential") as core:
        learner = core.learner(method)
        train = learner._engine.train
        learner._engine.train = lambda tasks, arrived: caught.append(tasks) or train(tasks, arrived)
        depth = method.objective.adapt(core.model).depth
        for round in range(2):
            jobs = [JobId("m", 3, client, round) for client in range(6)]
            for job in jobs:
                before = JobId("m", 3, job.client, 0) if method.state is not None and round else None
                alpha = depth - job.client % 2 if before is not None and method.payload.partial(1) else depth
                steps = LOCAL.steps_for(core.data.samples(job.client))
                learner.submit(TrainingJob(job, round, round, alpha, steps, before))
            learner.aggregate(round, jobs, round)

    def cast(named):
        return {
            name: shared.setdefault(id(tensor), tensor.to(dtype) if tensor.is_floating_point() else tensor)
            for name, tensor in named.items()
        }

    from dataclasses import replace

    shared = {}
    return method, [
        replace(t, start=t.start.to(dtype), frozen=cast(t.frozen), vectors=cast(t.vectors), facts=cast(t.facts))
        for t in caught[-1]
    ]


def both(tiny, entry, dtype, width=4, convolutions="grouped"):
    method, tasks = tasks_of(tiny, entry, dtype)
    data = Wide(tiny.data(), dtype)
    model = method.objective.adapt(residual_model())
    alone = SequentialEngine(model, data, CPU).train(tasks)
    return alone, BatchedEngine(model, data, CPU, width, convolutions=convolutions).train(tasks)


@pytest.mark.parametrize("convolutions", ["grouped", "products"])
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_every_method_comes_to_the_same_in_double_precision(tiny, entry, convolutions):
    alone, together = both(tiny, entry, torch.float64, convolutions=convolutions)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.final, one.final, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(other.cross_entropies, one.cross_entropies, rtol=1e-9, atol=1e-9)
        assert one.batch_sizes == other.batch_sizes


@pytest.mark.parametrize("entry", ["fedavg", "fedprox", "scaffold", "moon", "fedmlb", "fedbr"])
def test_in_single_precision_a_rounding_error_stays_one(tiny, entry):
    for one, other in zip(*both(tiny, entry, torch.float32), strict=True):
        torch.testing.assert_close(other.final, one.final, rtol=1e-3, atol=2e-4)


def test_the_same_jobs_give_the_same_bits_in_any_order(tiny):
    _, tasks = tasks_of(tiny, "fedavg", torch.float32)
    engine = BatchedEngine(residual_model(), tiny.data(), CPU, 4)
    first, again = engine.train(tasks), engine.train(tasks[::-1])[::-1]
    assert all(torch.equal(one.final, other.final) for one, other in zip(first, again, strict=True))


def test_running_statistics_belong_to_each_client(tiny):
    _, together = both(tiny, "fedavg", torch.float32)
    count = residual_model().layout.parameter_count
    statistics = torch.stack([result.final[count:] for result in together])
    assert (statistics.std(dim=0) > 0).all()


def test_calls_are_padded_to_few_widths_and_never_alone():
    assert [padded(jobs) for jobs in (1, 2, 3, 4, 5, 8, 9, 50)] == [2, 2, 4, 4, 8, 8, 16, 56]


def test_a_chunk_is_as_wide_as_memory_allows(tiny, monkeypatch):
    _, tasks = tasks_of(tiny, "fedavg", torch.float32)
    assert ChunkWidths(residual_model(), CPU).of(tasks[0]) == 64
    monkeypatch.setattr("edgefl.training.batched.chunk_width.HOST_BYTES", 2_000_000)
    few = ChunkWidths(residual_model(), CPU).of(tasks[0])
    assert 1 <= few < 64
    assert few & (few - 1) == 0
    # A round is aggregated without gradients, and what a step holds for its backward pass counts all the same.
    with torch.no_grad():
        assert ChunkWidths(residual_model(), CPU).of(tasks[0]) == few
    monkeypatch.setattr("edgefl.training.batched.chunk_width.HOST_BYTES", 1)
    assert ChunkWidths(residual_model(), CPU).of(tasks[0]) == 1
    with pytest.raises(ValueError, match="at least one job, not 0"):
        ChunkWidths(residual_model(), CPU, 0)


def test_a_chunk_that_does_not_fit_after_all_is_halved(tiny, monkeypatch):
    from edgefl.training.batched.stack import Stack

    _, tasks = tasks_of(tiny, "fedavg", torch.float32)
    steps = Stack.step, Stack.step_all

    def narrow(step):
        def refusing(self, *arguments):
            if len(self.tasks) > 2:
                raise torch.OutOfMemoryError("full")
            step(self, *arguments)

        return refusing

    monkeypatch.setattr(Stack, "step", narrow(steps[0]))
    monkeypatch.setattr(Stack, "step_all", narrow(steps[1]))
    results = BatchedEngine(residual_model(), tiny.data(), CPU, 8).train(tasks)
    assert [len(result.batch_sizes) for result in results] == [task.steps for task in tasks]


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_steps_that_are_repeated_on_fixed_memory_give_the_same_bits(tiny, entry):
    """What a CUDA graph replays; the second call finds the memory of the first, with another chunk's numbers in it."""
    method, tasks = tasks_of(tiny, entry, torch.float32)
    model = method.objective.adapt(residual_model())
    plain = BatchedEngine(model, tiny.data(), CPU, 4)
    repeating = BatchedEngine(model, tiny.data(), CPU, 4, DirectReplay)
    for order in (tasks, tasks[::-1], tasks[:4]):
        for one, other in zip(plain.train(order), repeating.train(order), strict=True):
            assert torch.equal(one.final, other.final)
            assert torch.equal(one.cross_entropies, other.cross_entropies)
            assert all(torch.equal(one.kept[name], other.kept[name]) for name in one.kept)


@pytest.mark.parametrize("entry", ["fedavg", "fedadc", "scaffold", {"method": "fedavg", "local": {"momentum": 0.9}}])
def test_a_recorded_step_serves_rounds_with_other_learning_rates(tiny, entry):
    """A graph has its numbers built in; so the rate is read from memory, like everything that a round changes."""
    method, tasks = tasks_of(tiny, entry, torch.float32)
    model, made = method.objective.adapt(residual_model()), []

    def recording(step):
        made.append(DirectReplay(step))
        return made[-1]

    plain = BatchedEngine(model, tiny.data(), CPU, 4)
    repeating = BatchedEngine(model, tiny.data(), CPU, 4, recording)
    recordings = []
    for lr in (0.1, 0.05, 0.025):
        slower = [replace(task, lr=lr) for task in tasks[:4]]
        for one, other in zip(plain.train(slower), repeating.train(slower), strict=True):
            torch.testing.assert_close(other.final, one.final, rtol=1e-6, atol=1e-7)
        recordings.append(len(made))
    assert recordings[0] == recordings[1] == recordings[2] > 0


def test_a_rule_that_needs_a_number_is_recorded_for_each_learning_rate(tiny):
    """A subclass of SGD, as a plug-in has it."""
    method, tasks = tasks_of(tiny, "fedavg", torch.float32)

    class Numbered(Sgd):
        def update(self, parameters, gradient, memory, options, lr):
            return parameters.sub_(gradient, alpha=lr)

    engine = BatchedEngine(method.objective.adapt(residual_model()), tiny.data(), CPU, 4, DirectReplay)
    results = [
        engine.train([replace(task, lr=lr, rule=Numbered()) for task in tasks[:4]])[0].final for lr in (0.1, 0.05)
    ]
    alone = train_job(
        replace(tasks[0], lr=0.05, rule=Numbered()), method.objective.adapt(residual_model()), tiny.data()
    )
    torch.testing.assert_close(results[1], alone.final, rtol=1e-3, atol=1e-4)
    assert not torch.equal(*results)


def test_images_of_all_clients_are_gathered_as_each_gets_them_alone():
    spec = Synthetic(clients=5, shape=(1, 8, 8), classes=3, train=60, test_images=10, augment="crop_flip")
    data = ClientData(load_federated(spec, 0, CPU))
    tasks = [SimpleNamespace(client=k, options=LOCAL, steps=3, seed=0, dispatch=1) for k in range(5)]
    together = list(data.side_by_side(tasks))
    alone = [list(data.batches(task)) for task in tasks]
    assert len(together) == 3
    for step, batch in enumerate(together):
        for row, batches in enumerate(alone):
            assert torch.equal(batch.inputs[row], batches[step].inputs)
            assert torch.equal(batch.labels[row], batches[step].labels)
    assert data.side_by_side([*tasks, SimpleNamespace(**vars(tasks[0]) | {"steps": 4})]) is None
    assert data.side_by_side([SimpleNamespace(**vars(task) | {"steps": 12}) for task in tasks]) is not None
    uneven = LOCAL.model_copy(update={"batch": 5})
    assert data.side_by_side([SimpleNamespace(**vars(task) | {"options": uneven}) for task in tasks]) is None


def test_a_failing_step_is_told_with_its_client(tiny):
    _, tasks = tasks_of(tiny, "fedavg", torch.float32)

    class Failing(Wide):
        def batches(self, task):
            for step, batch in enumerate(self.inner.batches(task)):
                if task.client == 3 and step == 2:
                    raise ValueError("torn page")
                yield batch

    engine = BatchedEngine(residual_model(), Failing(tiny.data(), torch.float32), CPU, 4)
    with pytest.raises(TrainingFault, match="client 3, round 2, local step 3: ValueError: torn page"):
        engine.train(tasks)


def test_products_are_asked_of_the_batched_engine_alone():
    assert EngineSpec(kind="batched", convolutions="products").convolutions == "products"
    with pytest.raises(UserError, match="applies to the engine 'batched' only, found kind: parallel"):
        validated(EngineSpec, {"kind": "parallel", "convolutions": "products"})


def test_a_core_whose_specification_says_so_multiplies_matrices(tiny, monkeypatch):
    seen = []
    unfold = torch.nn.functional.unfold
    monkeypatch.setattr("torch.nn.functional.unfold", lambda *given, **more: seen.append(1) or unfold(*given, **more))
    for convolutions in ("grouped", "products"):
        spec = EngineSpec(kind="batched", convolutions=convolutions)
        with TrainingCore(tiny.data(), residual_model(), 3, engine=spec) as core:
            learner = core.learner(build_method("fedavg", LOCAL))
            jobs = [JobId("m", 3, client, 0) for client in range(3)]
            for job in jobs:
                learner.submit(TrainingJob(job, 0, 0, core.model.depth, 2, None))
            learner.aggregate(0, jobs, 0)
            assert bool(seen) == (convolutions == "products")
            seen.clear()
            learner.evaluate(1)
            assert not seen


def test_the_core_takes_it_by_name(tiny):
    with TrainingCore(tiny.data(), residual_model(), 3, engine="batched") as core:
        learner = core.learner(tiny.method("fedavg"))
        for client in range(3):
            learner.submit(tiny.job(client, alpha=4))
        learner.aggregate(0, [JobId("m", 3, client, 0) for client in range(3)], 0)
        assert 0 <= learner.evaluate(1).metric <= 1
    assert core.engine_name == "batched"
    assert initial_vector(core.model, 3).equal(core.initial)
