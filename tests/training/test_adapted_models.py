"""Models that a method changes, and parts of models."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.training.job import Mixing
from edgefl.training.parallel.worker_pool import shared_pool

from .conftest import few_of, residual_model


@pytest.fixture
def core(tiny):
    with tiny.core(model=residual_model()) as made:
        yield made


def method(entry):
    return build_method(entry, LocalOptions(batch=4))


def test_moon_begins_with_every_other_methods_front_and_has_its_own_adapted_model(core):
    moon, fedavg = core.learner(method("moon")), core.learner(method("fedavg"))
    front = sum(entry.numel for entry in core.model.layout.parameters if entry.block < 2)
    assert torch.equal(moon.model(0)[:front], fedavg.model(0)[:front])
    assert moon.model(0).numel() > fedavg.model(0).numel()
    assert torch.equal(core.learner(method({"method": "moon", "as": "again"})).model(0), moon.model(0))
    assert torch.equal(core.learner(method("fedprox")).model(0), fedavg.model(0))


def test_stochastic_depth_is_evaluated_in_expectation_and_beside_it_others_are_not(core):
    entry = {"method": "stochdepth", "survival": 0.4}
    found = [core.learner(method(each)).evaluate(0) for each in (entry, "fedavg", entry)]
    layout, data = core.model.layout, core.data
    expected = []
    for keep in ((1.0, 0.4), None):
        with torch.no_grad(), using(training=False, keep_probability=keep):
            logits = core.model.apply_blocks(layout.weights(*layout.split(core.initial)), data.images)
        expected.append(float(F.cross_entropy(logits, data.labels)))
    assert found[0] == found[2]
    assert [each.loss for each in found[:2]] == pytest.approx(expected, rel=1e-5)
    assert found[0].loss != found[1].loss


LEVELS = {0: 0, 1: 1, 3: 1, 5: 2, 4: 2}


def submitted(tiny, learner, version=0, dispatch=0):
    jobs = [
        replace(tiny.job(client, version, dispatch=dispatch, alpha=4), level=level) for client, level in LEVELS.items()
    ]
    for job in jobs:
        learner.submit(job)
    return [job.id for job in jobs]


def trained(tiny, method, engine, rounds=2, **options):
    with tiny.core(engine, **options) as core:
        learner = core.learner(tiny.method(method))
        for round in range(rounds):
            learner.aggregate(round, submitted(tiny, learner, round, round), round)
        return learner.model(rounds).clone()


METHODS = ["heterofl", "fedrolex", "fjord", "depthfl"]


@pytest.mark.full
@pytest.mark.parametrize("method", ["heterofl", "depthfl"])
@pytest.mark.usefixtures("worker_processes")
def test_worker_processes_give_the_same_bits(tiny, method):
    shared_pool(2)._first.result()
    assert torch.equal(trained(tiny, method, "sequential"), trained(tiny, method, "parallel", workers=2))


@pytest.mark.parametrize("method", few_of(METHODS, ["fjord"]))
def test_a_learner_goes_on_from_its_snapshot(tiny, method):
    with tiny.core() as core:
        first, second = core.learner(tiny.method(method)), core.learner(tiny.method(method))
        ids = submitted(tiny, first)
        first.aggregate(0, ids[:2], 0)
        second.restore(*first.snapshot())
        for learner in (first, second):
            learner.aggregate(1, ids[2:], 1)
        assert torch.equal(first.model(2), second.model(2))


@pytest.mark.parametrize("of", ["deltas", "models"])
def test_mixing_changes_only_what_was_trained(tiny, of):
    with tiny.core() as core:
        learner = core.learner(tiny.method("heterofl"))
        ids = submitted(tiny, learner)
        learner.aggregate(0, ids[:1], 0)
        before = learner.model(1).clone()
        learner.aggregate(1, ids[3:4], 1, Mixing({ids[3]: 0.5}, of))
        changed = (learner.model(2) != before).nonzero().flatten()
        cut = tiny.method("heterofl").submodels.part(core.model, 2)
        assert set(changed.tolist()) <= set(cut.places(0).tolist())
        assert len(changed) > len(cut.places(0)) / 2
