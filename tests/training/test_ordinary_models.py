"""Ordinary PyTorch modules train to the same numbers with every engine, and as PyTorch trains them."""

from __future__ import annotations

import sys

import cloudpickle
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.methods.objectives.base import Batch
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model
from edgefl.training.base import JobTask
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob

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
        features = torch.flatten(F.max_pool2d(maps, 2), 1)
        return self.head(F.dropout(self.second(F.relu(self.first(features))), 0.2, self.training))[:, self.order]


class Ordinary(OrdinaryModel):
    dropout: float = 0.4

    def module(self, sample_shape, classes):
        return Net(self.dropout)


def trained(tiny, engine, method, rounds=2, spec=None):
    model = build_model(spec or Ordinary(), (1, 6, 6), 3)
    with TrainingCore(tiny.data(), model, 3, engine=engine, workers=2) as core:
        if engine == "parallel":
            core._own.engine._engine._settled = 0
        before = core.initial.clone()
        learner = core.learner(method)
        for round in range(rounds):
            jobs = [
                TrainingJob(
                    JobId("m", 3, client, round),
                    round,
                    round,
                    core.model.depth,
                    method.local.steps_for(core.data.samples(client)),
                    JobId("m", 3, client, round - 1) if method.state is not None and round else None,
                )
                for client in range(6)
            ]
            for job in jobs:
                learner.submit(job)
            learner.aggregate(round, [job.id for job in jobs], round)
        accuracy = learner.evaluate(rounds)
        assert torch.equal(core.initial, before)
        return learner.model(rounds), accuracy


@pytest.mark.parametrize("entry", ["fedavg", "fedmlb", "fedbr", "scaffold", {"method": "fedadc"}], ids=str)
@pytest.mark.usefixtures("worker_processes")
def test_every_engine_trains_an_ordinary_model_to_the_same_numbers(tiny, entry):
    method = tiny.method(entry, batch=4)
    model, accuracy = trained(tiny, "sequential", method)
    again, _ = trained(tiny, "sequential", method)
    assert torch.equal(model, again)
    side_by_side, other = trained(tiny, "parallel", method)
    assert torch.equal(model, side_by_side)
    assert accuracy == other
    stacked, _ = trained(tiny, "batched", method)
    torch.testing.assert_close(stacked, model, rtol=1e-3, atol=2e-4)


class Undropped(Net):
    def forward(self, inputs):
        maps = F.relu(self.middle(F.relu(self.norm(self.stem(inputs)))))
        return self.head(self.second(F.relu(self.first(torch.flatten(F.max_pool2d(maps, 2), 1)))))


class Without(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Undropped()


def test_one_step_of_one_client_is_pytorchs_running_statistics_included(tiny):
    batch = Batch(torch.randn(8, 1, 6, 6), torch.arange(8) % 3)

    class OneBatch(type(tiny.data())):
        def batches(self, task: JobTask):
            return iter([batch])

    model, reference = build_model(Without(), (1, 6, 6), 3), Undropped().train()
    method = tiny.method("fedavg", lr=0.1, momentum=0.0, steps=1, epochs=None)
    with TrainingCore(OneBatch(), model, 3, engine="sequential") as core:
        reference.load_state_dict(named(model, core.initial.clone()), strict=False)
        learner, job = core.learner(method), TrainingJob(JobId("m", 3, 0, 0), 0, 0, core.model.depth, 1, None)
        learner.submit(job)
        learner.aggregate(0, [job.id], 0)
        found = named(model, learner.model(1))
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.1)
    F.cross_entropy(reference(batch.inputs), batch.labels).backward()
    optimiser.step()
    after = reference.state_dict()
    assert {"norm.running_mean", "norm.running_var"} <= set(found)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, after[name], rtol=1e-3, atol=1e-4)


def named(model, vector):
    layout = model.layout
    return {name: tensor for block in layout.weights(*layout.split(vector)) for name, tensor in block.items()}


class Viewed(Net):
    """A view that needs channels-first memory, in a model that every engine must train alike."""

    def forward(self, inputs):
        maps = F.max_pool2d(F.relu(self.middle(F.relu(self.norm(self.stem(inputs))))), 2)
        return self.head(self.second(F.relu(self.first(maps.view(-1, 36)))))


class Viewing(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Viewed()


@pytest.mark.usefixtures("worker_processes")
def test_every_engine_trains_a_model_that_views_its_maps(tiny):
    method, found = tiny.method("fedmlb", batch=4), {}
    for engine in ("sequential", "parallel", "batched"):
        found[engine], _ = trained(tiny, engine, method, spec=Viewing())
    assert torch.equal(found["sequential"], found["parallel"])
    torch.testing.assert_close(found["batched"], found["sequential"], rtol=1e-3, atol=2e-4)
