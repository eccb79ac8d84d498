"""FedDyn's α by a client's size: an option that balanced data do not notice."""

from __future__ import annotations

import pytest
import torch

from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.methods.build import build_method
from edgefl.methods.feddyn import FedDyn
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model
from edgefl.training.client_data import ClientData
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob


def test_a_client_of_half_the_mean_size_has_twice_the_alpha(bench):
    bench.client = {**bench.client, "relative_size": torch.tensor(0.5)}
    scaled = bench.gradient(FedDyn(alpha=0.15, scale_alpha=True))
    torch.testing.assert_close(scaled, bench.gradient(FedDyn(alpha=0.3)))


def federated(partition):
    section = Synthetic(shape=(1, 8, 8), classes=4, train=120, test_images=20, clients=4, partition=partition)
    return load_federated(section, seed=0)


def trained(data, entry):
    """The model after two rounds of all clients."""
    model = build_model(MODELS["cnn"](width=2), data.shape, data.classes)
    method = build_method(entry, LocalOptions(batch=8, lr=0.1, steps=2))
    with TrainingCore(ClientData(data), model, 0, engine="sequential") as core:
        learner = core.learner(method)
        for round in range(2):
            jobs = []
            for client in range(4):
                before = JobId("m", 0, client, round - 1) if round else None
                jobs.append(JobId("m", 0, client, round))
                learner.submit(TrainingJob(jobs[-1], round, round, core.model.depth, 2, before))
            learner.aggregate(round, jobs, round)
        return learner.model(2)


def test_only_unbalanced_data_notice():
    method = {"method": "fedmlb", "server": {"kind": "feddyn"}}
    scaled = {**method, "server": {"kind": "feddyn", "scale_alpha": True}}
    balanced = federated({"kind": "iid"})
    assert torch.equal(trained(balanced, method), trained(balanced, scaled))
    unbalanced = federated({"kind": "dirichlet", "alpha": 0.3, "balanced": False})
    sizes = [float(ClientData(unbalanced).facts(client)["relative_size"]) for client in range(4)]
    assert sizes == pytest.approx([size / 30 for size in unbalanced.sizes])
    assert not torch.equal(trained(unbalanced, method), trained(unbalanced, scaled))
