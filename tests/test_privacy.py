"""Secure aggregation and differential privacy: training equals direct computations."""

import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Leaves, Sgd, local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.models.registry import build_model
from edgefl.privacy.secure_aggregation import SecureAggregation
from edgefl.privacy.training import ClippedExamples, ring_mean
from edgefl.randomness import generator
from edgefl.record.summary import read_run
from edgefl.scenario.components import MODEL_SECTION

SECURE = {"secure_aggregation": {"kind": "secagg_plus", "neighbours": 3}}


@pytest.fixture
def trained(small, tmp_path):
    def make(name, **changes):
        usual = {"model": {"name": "mlp"}, "methods": ["fedavg"], "training__rounds": 2, "training__cohort": 4}
        scenario = small(**{**usual, **changes})
        folder = run(scenario, out=tmp_path / name, engine="sequential")
        (result,) = read_run(folder)[1].methods["fedavg"]
        return result, next(load_file(path) for path in sorted(folder.rglob("final.safetensors")))

    return make


def distance(one, other):
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def test_a_secure_sum_is_the_plain_one_up_to_its_levels(trained):
    plain, secure = trained("plain"), trained("secure", privacy=SECURE)
    level = 16 / (2**22 - 1)
    assert 0 < distance(plain[1], secure[1]) <= 2 * level
    assert secure[0].secure_aggregation["round_trips"] == 8
    assert secure[0].seconds > plain[0].seconds
    assert secure[0].joules > plain[0].joules
    coarse = trained("coarse", privacy={"secure_aggregation": {"kind": "lightsecagg", "bits": 8, "range": 1.0}})
    assert level < distance(plain[1], coarse[1]) < 2 * 2 / 255


def test_the_sum_in_the_ring_is_exact():
    numbers = torch.from_numpy(generator(0, "test").standard_normal((7, 50)))
    weights = [(k + 1) / 28 for k in range(7)]
    spec = SecureAggregation(kind="secagg", bits=20, range=4.0)
    levels, ring = 2**20 - 1, 7 * (2**20 - 1) + 1
    codes = [
        [round((min(max(w / weights[-1] * x, -4.0), 4.0) + 4) / 8 * levels) for x in row]
        for w, row in zip(weights, numbers.tolist(), strict=True)
    ]
    total = [sum(each) % ring for each in zip(*codes, strict=True)]
    mean = [(each * 8 / levels - 7 * 4) * weights[-1] for each in total]
    assert ring_mean(numbers, weights, spec, weights[-1]).tolist() == pytest.approx(mean, abs=1e-12)


def test_central_noise_is_on_the_sum_of_clipped_updates(trained):
    dp = {"kind": "central", "clip": 0.05, "noise": 0.7, "delta": 1e-3, "sampling": "fixed", "accountant": "none"}
    without = {**dp, "noise": 0.0, "clip": 1e9}
    one = {"training__rounds": 1}
    plain, noisy = trained("plain", privacy__dp=without, **one), trained("noisy", privacy__dp=dp, **one)
    start = trained("start", privacy__dp={**without, "clip": 1e-12}, **one)[1]
    # The mean of four updates, all longer than the norm: at most clip, which is little next to the noise.
    moved = torch.cat([(noisy[1][name] - start[name]).flatten() for name in start])
    assert float(moved.std()) == pytest.approx(0.7 * 0.05 / 4, rel=0.03)
    assert distance(plain[1], start) > 0.01


def test_steps_of_dp_sgd_equal_a_direct_computation():
    model = build_model(MODEL_SECTION.read({"name": "cnn", "width": 2}, "model").spec, (1, 8, 8), 4)
    draws, options = torch.Generator().manual_seed(3), LocalOptions(lr=0.5)
    start = torch.randn(model.layout.parameter_count, generator=draws) * 0.3
    batch = Batch(torch.randn(6, 1, 8, 8, generator=draws), torch.tensor([0, 1, 2, 3, 0, 1]))
    plain, context = build_method("fedavg", options), Context(model, {}, {}, {}, model.depth)
    sums, norms = torch.zeros_like(start), []
    for k in range(6):
        one = Batch(*(each[k : k + 1] for each in batch))
        leaves = Leaves(model.layout)
        gradient = leaves.gradient(plain.objective.loss(leaves.at(start.clone(), start[:0]), one, context).total)
        norms.append(float(gradient.norm()))
        sums += gradient * min(1.0, 2.5 / norms[-1])
    assert min(norms) < 2.5 < max(norms)
    noise = torch.randn(len(start), generator=torch.Generator().manual_seed(77)) * 0.8 * 2.5
    clipped = ClippedExamples(base=plain.objective, clip=2.5, noise=0.8, size=8)
    context = replace(context, draws={"noise": torch.tensor(77)})
    after, _ = local_step(clipped, Sgd(), start.clone(), start[:0], batch, context, {}, options, 0.5)
    assert (after - (start - 0.5 * (sums + noise) / 8)).abs().max() < 1e-6


def test_gradients_that_are_not_clipped_are_those_of_sgd(trained):
    dp = {"kind": "example", "clip": 1e9, "noise": 0.0, "delta": 1e-3, "sampling": "fixed", "accountant": "none"}
    assert distance(trained("private", privacy__dp=dp)[1], trained("plain")[1]) < 1e-6


def test_without_the_extra_epsilon_is_refused_in_a_sentence_that_names_it(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"dp-accounting is not installed: .*\[privacy\]"):
        trained("refused", privacy__dp={"kind": "central", "clip": 1.0, "epsilon": 8, "delta": 1e-3})
