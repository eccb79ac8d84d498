"""Clients side by side come to what they come to one after another, within rounding."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.objective import Batch
from edgefl.methods.recipe import METHODS
from edgefl.training.accelerator import Replay
from edgefl.training.batched.stack import Stack
from edgefl.training.core import TrainingCore
from edgefl.training.engines.batched import BatchedEngine, fitting
from edgefl.training.engines.sequential import SequentialEngine, train_job
from edgefl.training.faults import TrainingFault
from edgefl.training.job_task import ClientData

from .conftest import TinyData, few_of, jobs_of, residual_model, train_round
from .test_engine_agreement import Failing

CPU = torch.device("cpu")
LOCAL = LocalOptions(epochs=1, batch=4, lr=0.05, weight_decay=1e-3, clip_norm=5.0)
ENTRIES = [
    *METHODS.names(),
    {"method": "fedadc", "variant": "double"},
    {"method": "mixup", "local": {"momentum": 0.9, "batch": 2, "accumulate": 2}},
]
REPLAYED = ["fedbr", "scaffold", "moon", "fedrs", "mixup", ENTRIES[-1]]
"""Their steps read different things: client states, label counts, frozen models, draws, momentum."""


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


def tasks_of(entry, dtype=torch.float32, clients=range(6)):
    """The jobs of a second round, of clients with different numbers of steps and last batches of other sizes."""
    method = build_method(entry, LOCAL)
    with TrainingCore(TinyData(), residual_model(), 3, engine="sequential") as core:
        learner = core.learner(method)
        train_round(learner, jobs_of(core, method, 0, clients))
        tasks = [learner._inputs(job).task for job in jobs_of(core, method, 1, clients)]
    shared = {}

    def cast(named):
        return {
            name: shared.setdefault(id(tensor), tensor.to(dtype) if tensor.is_floating_point() else tensor)
            for name, tensor in named.items()
        }

    return method, [
        replace(t, start=t.start.to(dtype), frozen=cast(t.frozen), vectors=cast(t.vectors), facts=cast(t.facts))
        for t in tasks
    ]


def both(entry, dtype):
    """One after another, and side by side, in two chunks: 7, 12, 5 and 3 images in batches of up to 4."""
    method, tasks = tasks_of(entry, dtype, (0, 1, 2, 5))
    data = Wide(TinyData(), dtype)
    model = method.objective.adapt(residual_model())
    alone = SequentialEngine(model, data).train(tasks)
    return alone, BatchedEngine(model, data, CPU, 2).train(tasks)


@pytest.mark.parametrize("entry", few_of(ENTRIES, ["fedavg", "fedbr", "scaffold", "moon"]), ids=str)
def test_every_method_comes_to_the_same_in_double_precision(entry):
    alone, together = both(entry, torch.float64)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.final, one.final, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(other.cross_entropies, one.cross_entropies, rtol=1e-9, atol=1e-9)
        assert one.batch_sizes == other.batch_sizes


def test_single_precision_adds_a_rounding_error_and_each_client_has_its_own_statistics():
    alone, together = both("fedavg", torch.float32)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.final, one.final, rtol=1e-3, atol=2e-4)
    count = residual_model().layout.parameter_count
    statistics = torch.stack([result.final[count:] for result in together])
    assert (statistics.std(dim=0) > 0).all()


def test_the_same_jobs_give_the_same_bits_in_any_order():
    _, tasks = tasks_of("fedavg")
    engine = BatchedEngine(residual_model(), TinyData(), CPU, 4)
    first, again = engine.train(tasks), engine.train(tasks[::-1])[::-1]
    assert all(torch.equal(one.final, other.final) for one, other in zip(first, again, strict=True))


def test_a_fault_of_the_cost_model_is_said_and_costs_only_speed(monkeypatch):
    _, tasks = tasks_of("fedavg")
    monkeypatch.setattr("edgefl.training.engines.batched.measure", lambda *_: {}["no such formula"])
    with pytest.warns(UserWarning, match="clients train one at a time, because measuring a step raised KeyError"):
        assert len(BatchedEngine(residual_model(), TinyData(), CPU).train(tasks)) == len(tasks)


def test_large_convolutions_are_not_stacked_on_cuda(monkeypatch):
    _, (task, *_) = tasks_of("fedavg")
    monkeypatch.setattr("edgefl.training.accelerator.memory_bytes", lambda device: 1 << 36)
    assert fitting(residual_model(), torch.device("cuda"), task) == 64
    monkeypatch.setattr("edgefl.training.engines.batched.LARGE_FLOPS", 1e3)
    assert [fitting(residual_model(), torch.device(kind), task) for kind in ("cuda", "cpu")] == [1, 64]


def test_a_chunk_is_as_wide_as_memory_allows(monkeypatch):
    _, tasks = tasks_of("fedavg")
    assert fitting(residual_model(), CPU, tasks[0]) == 64
    monkeypatch.setattr("edgefl.training.engines.batched.HOST_BYTES", 2_000_000)
    few = fitting(residual_model(), CPU, tasks[0])
    assert 1 <= few < 64
    assert few & (few - 1) == 0
    # A round is aggregated without gradients, and what a step holds for its backward pass counts all the same.
    with torch.no_grad():
        assert fitting(residual_model(), CPU, tasks[0]) == few
    monkeypatch.setattr("edgefl.training.engines.batched.HOST_BYTES", 1)
    assert fitting(residual_model(), CPU, tasks[0]) == 1


def test_a_chunk_that_does_not_fit_after_all_is_halved(monkeypatch):
    _, tasks = tasks_of("fedavg")
    steps = Stack.step, Stack.step_all

    def narrow(step):
        def refusing(self, *arguments):
            if len(self.tasks) > 2:
                raise torch.OutOfMemoryError("full")
            step(self, *arguments)

        return refusing

    monkeypatch.setattr(Stack, "step", narrow(steps[0]))
    monkeypatch.setattr(Stack, "step_all", narrow(steps[1]))
    results = BatchedEngine(residual_model(), TinyData(), CPU, 8).train(tasks)
    assert [len(result.batch_sizes) for result in results] == [task.steps for task in tasks]


@pytest.mark.parametrize("entry", few_of(REPLAYED, ["fedbr"]), ids=str)
def test_steps_that_are_repeated_on_fixed_memory_give_the_same_bits(entry):
    """What a CUDA graph replays; the second call finds the memory of the first, with another chunk's numbers in it."""
    method, tasks = tasks_of(entry)
    model = method.objective.adapt(residual_model())
    plain = BatchedEngine(model, TinyData(), CPU, 4)
    repeating = BatchedEngine(model, TinyData(), CPU, 4, Replay)
    for order in (tasks, tasks[::-1]):
        for one, other in zip(plain.train(order), repeating.train(order), strict=True):
            assert torch.equal(one.final, other.final)
            assert torch.equal(one.cross_entropies, other.cross_entropies)
            assert all(torch.equal(one.kept[name], other.kept[name]) for name in one.kept)


@pytest.mark.full
@pytest.mark.parametrize("entry", ["fedavg", "fedadc"])
def test_a_recorded_step_serves_rounds_with_other_learning_rates(entry):
    """A graph has its numbers built in; so the rate is read from memory, like everything that a round changes."""
    method, tasks = tasks_of(entry)
    model, made = method.objective.adapt(residual_model()), []

    def recording(step):
        made.append(Replay(step))
        return made[-1]

    plain = BatchedEngine(model, TinyData(), CPU, 4)
    repeating = BatchedEngine(model, TinyData(), CPU, 4, recording)
    recordings = []
    for lr in (0.1, 0.05):
        slower = [replace(task, lr=lr) for task in tasks[:4]]
        for one, other in zip(plain.train(slower), repeating.train(slower), strict=True):
            torch.testing.assert_close(other.final, one.final, rtol=1e-6, atol=1e-7)
        recordings.append(len(made))
    assert recordings[0] == recordings[1] > 0


@pytest.mark.full
def test_a_rule_that_needs_a_number_is_recorded_for_each_learning_rate():
    """A subclass of SGD, as a plug-in has it."""
    method, tasks = tasks_of("fedavg")

    class Numbered(Sgd):
        def update(self, parameters, gradient, memory, options, lr):
            return parameters.sub_(gradient, alpha=lr)

    engine = BatchedEngine(method.objective.adapt(residual_model()), TinyData(), CPU, 4, Replay)
    results = [
        engine.train([replace(task, lr=lr, rule=Numbered()) for task in tasks[:4]])[0].final for lr in (0.1, 0.05)
    ]
    alone = train_job(replace(tasks[0], lr=0.05, rule=Numbered()), method.objective.adapt(residual_model()), TinyData())
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


def test_a_failing_step_is_told_with_its_client():
    _, tasks = tasks_of("fedavg")

    engine = BatchedEngine(residual_model(), Failing(Wide(TinyData(), torch.float32)), CPU, 4)
    with pytest.raises(TrainingFault, match="client 3, round 2, local step 3: ValueError: torn page"):
        engine.train(tasks)
