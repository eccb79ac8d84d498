"""Methods that change the model, or how it is evaluated, train and are judged on what they say."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using

from .conftest import residual_model


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


def test_a_model_that_a_method_cannot_train_is_refused(tiny):
    with pytest.raises(UserError, match="this model has none; use a resnet"):
        tiny.core().learner(method("stochdepth"))
