"""Ordinary PyTorch modules train as PyTorch trains them, alike in every engine, and cannot change what others read."""

from __future__ import annotations

import sys

import cloudpickle
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import jobs_of, same, train_round, train_rounds

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker process cannot import the tests


class Net(nn.Module):
    """Batch norm, dropout, a table of indices, tied weights: what needs care in a pure function."""

    def __init__(self, dropout=0.4):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.middle, self.drop = nn.Conv2d(4, 4, 3, padding=1), nn.Dropout2d(dropout)
        self.first, self.second = nn.Linear(36, 36), nn.Linear(36, 36)
        self.second.weight = self.first.weight
        self.head = nn.Linear(36, 3)
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, inputs):
        maps = self.drop(F.relu(self.middle(F.relu(self.norm(self.stem(inputs))))))
        features = F.max_pool2d(maps, 2).view(-1, 36)  # which needs channels-first memory
        return self.head(F.dropout(self.second(F.relu(self.first(features))), 0.2, self.training))[:, self.order]


class Ordinary(OrdinaryModel):
    dropout: float = 0.4

    def module(self, sample_shape, classes):
        return Net(self.dropout)


def core_of(tiny, engine, model):
    core = tiny.core(engine, 2, model)
    if engine == "parallel":
        core._own.engine._settled = 0
        shared_pool(2)._first.result()
    return core


def trained(tiny, engine, method, spec):
    with core_of(tiny, engine, build_model(spec, (1, 6, 6), 3)) as core:
        before = core.initial.clone()
        found = train_rounds(core, method)
        assert torch.equal(core.initial, before)
        return found


def check_engines(tiny, entry, spec, others):
    method = tiny.method(entry, epochs=1)
    expected = trained(tiny, "sequential", method, spec)
    for engine in others:
        found = trained(tiny, engine, method, spec)
        torch.testing.assert_close(found[0], expected[0], rtol=1e-3, atol=2e-4)
        assert same(found, expected) or engine == "batched"


@pytest.mark.full
@pytest.mark.parametrize("entry", ["fedmlb", "fedbr", "fedadc"])
@pytest.mark.usefixtures("worker_processes")
def test_every_engine_trains_an_ordinary_model_to_the_same_numbers(tiny, entry):
    check_engines(tiny, entry, Ordinary(), ["parallel", "batched"])


def named(model, vector):
    layout = model.layout
    return {name: tensor for block in layout.weights(*layout.split(vector)) for name, tensor in block.items()}


class Tracking(nn.Module):
    """A layer unknown to PyTorch, with a buffer that counts its calls in training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs):
        if self.training:
            self.calls += 1
        return inputs * (1 + 0.01 * self.calls)


class Clamping(nn.Linear):
    """A layer that writes its weights in every evaluation, to keep them small."""

    def forward(self, inputs):
        if not self.training:
            self.weight.clamp_(-0.01, 0.01)
        return super().forward(inputs)


def plain_model(last=nn.Linear):
    """Layers of PyTorch alone, which do not know edgefl's modes."""
    blocks = {
        "first": nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        "second": nn.Sequential(nn.Conv2d(4, 6, 2), nn.BatchNorm2d(6, momentum=None), Tracking(), nn.ReLU()),
        "third": nn.Sequential(nn.Flatten(), last(6, 3)),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


ENGINES = ["sequential", "batched", pytest.param("parallel", marks=pytest.mark.full)]


CLIENTS = (0, 1, 3)  # batch norm cannot train on a last batch of one image


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("worker_processes")
def test_state_that_a_module_changes_reaches_no_other_client_method_or_evaluation(tiny, engine):
    """Knowledge distillation also calls the modules with the received model, which it must not change."""
    method, other = tiny.method("kd", epochs=1), tiny.method("fedavg", epochs=1)
    with core_of(tiny, engine, plain_model()) as core:
        alone = train_rounds(core, other, clients=CLIENTS)
    with core_of(tiny, engine, plain_model()) as core:
        before = core.initial.clone()
        found = train_rounds(core, method, clients=CLIENTS)
        assert same(found, train_rounds(core, method, clients=CLIENTS))
        assert same(alone, train_rounds(core, other, clients=CLIENTS))
        assert torch.equal(core.initial, before)
    # Each client begins with the received count, and adds one for each of its steps.
    sizes = [tiny.sizes[client] for client in CLIENTS]
    mean = sum(method.local.steps_for(size) * size for size in sizes) / sum(sizes)
    calls = named(core.model, found[0])["2.calls"] - named(core.model, before)["2.calls"]
    assert float(calls) == pytest.approx(2 * mean, rel=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("worker_processes")
def test_weights_that_a_module_changes_in_an_evaluation_reach_no_model(tiny, engine):
    method = tiny.method("fedavg", epochs=1)
    with core_of(tiny, engine, plain_model(Clamping)) as core:
        before, learner = core.initial.clone(), core.learner(method)
        train_round(learner, jobs_of(core, method, 0, CLIENTS))
        learner.evaluate(1)
        assert torch.equal(core.initial, before)
        assert learner.model(1)[: core.model.layout.parameter_count].abs().max() > 0.01


@pytest.mark.parametrize("training", [True, False])
def test_frozen_copies_do_not_track_and_layers_are_in_the_mode_of_the_call(training):
    model, generator = plain_model(), torch.Generator().manual_seed(1)
    layout = model.layout
    vector = torch.rand(layout.size, generator=generator)
    before, images = vector.clone(), torch.randn(5, 1, 6, 6, generator=generator)
    with torch.no_grad(), using(training=training):
        found = model.apply_blocks(layout.frozen(*layout.split(vector)), images)
    assert torch.equal(vector, before)
    reference = plain_model().blocks
    for block, tensors in zip(reference.values(), layout.weights(*layout.split(before)), strict=True):
        block.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, strict=False)
    # PyTorch's own way: in training a copy of the module, whose statistics are thrown away.
    expected = nn.Sequential(*reference.values()).train(training)(images)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_local_model_of_plain_layers_trains_as_pytorch_does():
    model, generator = plain_model(), torch.Generator().manual_seed(1)
    layout = model.layout
    vector = torch.rand(layout.size, generator=generator)
    images = torch.randn(5, 1, 6, 6, generator=generator)
    reference = nn.Sequential(*plain_model().blocks.values()).train()
    for entry in layout.buffers:
        if entry.name.endswith("num_batches_tracked"):
            vector[layout.parameter_count + entry.start] = 0
    state = {}
    for index, tensors in enumerate(layout.weights(*layout.split(vector.clone()))):
        state |= {f"{index}.{name}": tensor for name, tensor in tensors.items()}
    reference.load_state_dict(state)
    for _ in range(3):
        with torch.no_grad(), using(training=True, track=True):
            found = model.apply_blocks(layout.weights(*layout.split(vector)), images)
            assert torch.allclose(found, reference(images), atol=1e-6)
    after = reference.state_dict()
    for index, tensors in enumerate(layout.weights(*layout.split(vector))):
        for name, tensor in tensors.items():
            assert torch.allclose(tensor, after[f"{index}.{name}"].float(), atol=1e-6)
