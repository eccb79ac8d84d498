"""The shipped scenario, as users meet it: real digits, a hundred devices, sixty rounds."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

from edgefl.data.batches import fetch
from edgefl.data.federated import load_federated
from edgefl.experiment import run
from edgefl.models.registry import build_model, initial_vector
from edgefl.randomness import generator
from edgefl.rerun.verify import verify
from edgefl.scenario import load_scenario


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("5g_100clients")


def accuracy_of(folder) -> float:
    return json.loads((folder / "summary.json").read_text())["methods"]["fedavg"][0]["accuracy"]["final"]


def test_the_main_job_in_small_learns_and_its_log_verifies(tmp_path):
    chosen = load_scenario("5g_100clients", {"stop": "rounds", "training.rounds": 8}).with_seeds([0])
    folder = run(chosen, out=tmp_path / "run", methods=["fedavg"])
    assert accuracy_of(folder) > 0.5
    assert verify(folder) == []


@pytest.fixture(scope="module")
def fedavg(scenario, tmp_path_factory):
    """FedAvg alone, for all its rounds."""
    chosen = load_scenario("5g_100clients", {"stop": "rounds"}).with_seeds([scenario.seeds[0]])
    return run(chosen, out=tmp_path_factory.mktemp("main") / "run", methods=["fedavg"])


def centralised_accuracy(scenario) -> float:
    """The same model, trained by plain PyTorch on as many images as all rounds together, drawn from all clients."""
    local = scenario.training.local
    data = load_federated(scenario.data, 0)
    model = build_model(scenario.model.spec, data.shape, data.classes)
    vector = initial_vector(model, 0)
    with torch.no_grad():
        tensors = model.layout.weights(*model.layout.split(vector))
        for block, named in zip(model.blocks.values(), tensors, strict=True):
            for name, tensor in [*block.named_parameters(), *block.named_buffers()]:
                tensor.copy_(named[name])
    optimiser = torch.optim.SGD(model.parameters(), lr=local.lr, weight_decay=local.weight_decay)
    images = scenario.training.rounds * scenario.training.cohort * int(data.sizes[0])
    draws = generator(0, "centralised reference")
    for _ in range(images // local.batch):
        batch = fetch(data.train, torch.from_numpy(draws.choice(len(data.train), local.batch, replace=False)))
        optimiser.zero_grad()
        F.cross_entropy(model(batch.inputs), batch.labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), local.clip_norm)
        optimiser.step()
    with torch.no_grad():
        test = fetch(data.test, torch.arange(len(data.test)))
        return float((model(test.inputs).argmax(1) == test.labels).float().mean())


@pytest.mark.release
def test_fedavg_ends_within_five_points_of_centralised_training(scenario, fedavg):
    accuracy = accuracy_of(fedavg)
    assert accuracy > 0.93
    assert accuracy > centralised_accuracy(scenario) - 0.05


@pytest.mark.release
def test_the_log_can_be_believed(fedavg):
    assert verify(fedavg) == []
