"""Methods that change the model, or how it is evaluated, train and are judged on what they say."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.mode import using
from edgefl.models.norm import GroupNorm
from edgefl.models.residual import basic_block
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.training.core import TrainingCore


def residual_model():
    norm = partial(GroupNorm, 2)
    blocks = {
        "conv1": nn.Sequential(Conv2d(1, 8, 3), norm(8), nn.ReLU()),
        "layer1": nn.Sequential(basic_block(8, 8, 1, norm), basic_block(8, 8, 1, norm)),
        "fc": Classifier(Linear(8, 3, slim_outputs=False), pool=True),
    }
    return BlockModel(blocks, sample_shape=(1, 6, 6), classes=3, align_block=1)


@pytest.fixture(params=["sequential", "parallel"])
def core(request, tiny):
    with TrainingCore(tiny.data(), residual_model(), 3, engine=request.param, workers=2) as made:
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


def test_a_model_that_a_method_cannot_train_is_refused(tiny):
    with pytest.raises(UserError, match="this model has none; use a resnet"):
        tiny.core().learner(method("stochdepth"))
