"""Local rules: SGD, and momentum that persists."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefl.data.batches import job_batches
from edgefl.data.federated import load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd
from edgefl.models.registry import MODELS, build_model
from edgefl.training.core import TrainingCore
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_task import ClientData


def quadratic_gradient(x: torch.Tensor, step: int) -> torch.Tensor:
    return 3 * x - torch.arange(x.shape[-1], dtype=x.dtype) * (step + 1)


@settings(max_examples=30, deadline=None)
@given(
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    nesterov=st.booleans(),
    weight_decay=st.sampled_from([0.0, 1e-3, 0.1]),
    clip_norm=st.sampled_from([None, 0.5, 1e3]),
    lr=st.floats(1e-3, 0.2),
)
def test_steps_are_those_of_torch_sgd_after_clipping(momentum, nesterov, weight_decay, clip_norm, lr) -> None:
    nesterov = nesterov and momentum > 0
    options = LocalOptions(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, clip_norm=clip_norm)
    start = torch.linspace(-1, 2, 5, dtype=torch.float64)
    reference = torch.nn.Parameter(start.clone())
    optimiser = torch.optim.SGD([reference], lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)
    rule, ours = Sgd(), start.clone()
    memory = rule.begin(ours, {}, options, 4)
    for step in range(4):
        reference.grad = quadratic_gradient(reference.detach(), step)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([reference], clip_norm)
        optimiser.step()
        ours = rule.update(ours, quadratic_gradient(rule.point(ours, memory, lr), step), memory, options, lr)
    torch.testing.assert_close(ours, reference.detach(), rtol=1e-12, atol=1e-12)


LOCAL = LocalOptions(batch=8, lr=0.05, steps=3, momentum=0.9, nesterov=True, weight_decay=1e-3)
ROUNDS = 3


@pytest.fixture
def data():
    return load_federated(Synthetic(shape=(1, 8, 8), classes=3, train=60, test=12, clients=2), seed=0)


def trained(data, entry, cohorts, engine="sequential"):
    """The model after rounds of these cohorts."""
    model = build_model(MODELS["cnn"](width=2), data.shape, data.classes)
    last: dict[int, JobId] = {}
    with TrainingCore(ClientData(data), model, 0, engine=engine) as core:
        learner = core.learner(build_method(entry, LOCAL))
        for round, cohort in enumerate(cohorts):
            jobs = []
            for client in cohort:
                before = last.get(client)
                last[client] = JobId("m", 0, client, 0 if before is None else before.dispatch + 1)
                learner.submit(TrainingJob(last[client], round, round, core.model.depth, 3, before))
                jobs.append(last[client])
            learner.aggregate(round, jobs, round)
        return learner.model(len(cohorts)), core.model, core.initial


KEPT = {"method": "fedavg", "local": {"optimizer": {"kind": "sgd", "state": "keep"}}}


def test_one_client_alone_trains_as_one_optimiser_that_is_never_reset(data):
    found, model, initial = trained(data, KEPT, [[1]] * ROUNDS)
    leaf = nn.Parameter(initial.clone())
    optimiser = torch.optim.SGD([leaf], lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    for dispatch in range(ROUNDS):
        plan = job_batches(data.train, "none", data.shards.shard(1), LOCAL, 3, seed=0, client=1, dispatch=dispatch)
        for step in range(len(plan)):
            batch = plan.step(step)
            optimiser.zero_grad()
            logits = model.apply_blocks(model.layout.weights(leaf), batch.inputs)
            nn.functional.cross_entropy(logits, batch.labels).backward()
            optimiser.step()
    torch.testing.assert_close(found, leaf.detach(), rtol=1e-4, atol=1e-6)
    forgetful, *_ = trained(data, "fedavg", [[1]] * ROUNDS)
    assert not torch.allclose(found, forgetful, atol=1e-4)


def test_a_client_that_never_took_part_starts_without_momentum(data):
    once = [[0, 1]]
    assert torch.equal(trained(data, KEPT, once)[0], trained(data, "fedavg", once)[0])


def test_it_lives_beside_what_the_method_keeps(data):
    entry = {**KEPT, "method": "fedbr", "full_every": 1, "server": "feddyn"}
    assert set(build_method(entry, LOCAL).state.vectors) == {"previous", "drift", "velocity"}
    trained(data, entry, [[0, 1], [1], [0, 1]])


def test_without_momentum_there_is_nothing_to_keep():
    with pytest.raises(UserError, match="no momentum to keep"):
        build_method(KEPT, LocalOptions())
