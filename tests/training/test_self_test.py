"""A step of an ordinary module is PyTorch's, or the module is refused with the first tensor that differs."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.utils.checkpoint import checkpoint

from edgefl.errors import Note, UserError
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model, initial_vector
from edgefl.training.evaluation import PLAIN, outputs_of
from edgefl.training.self_test import check_module, refusal

from .conftest import train_rounds


def built(make, shape=(1, 6, 6), **options):
    class Made(OrdinaryModel):
        def module(self, sample_shape, classes):
            return make()

    return build_model(Made(**options), shape, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(36, 8), nn.Linear(8, 3)

    def features(self, x):
        return torch.tanh(self.body(x.flatten(1)))

    def forward(self, x):
        return self.head(self.features(x))


class Kept(Net):
    """Reads its weight in a second place, which PyTorch's optimizer changes too."""

    def __init__(self):
        super().__init__()
        self.kept = self.head.weight.data

    def forward(self, x):
        return super().forward(x) + self.features(x) @ self.kept.t()


class Doubled(Net):
    """Answers otherwise in evaluation, by its own ``eval``."""

    factor = 1.0

    def eval(self):
        self.factor = 2.0
        return super().eval()

    def train(self, mode=True):
        self.factor = 1.0 if mode else self.factor
        return super().train(mode)

    def forward(self, x):
        return self.factor * super().forward(x)


def test_a_module_that_edgefl_would_train_otherwise_is_refused():
    check_module(built(Net), LocalOptions(lr=0.1))
    check_module(built(Doubled), LocalOptions(lr=0.1))
    message = r"edgefl's step of this model is not PyTorch's: its output in evaluation differs"
    with pytest.raises(UserError, match=message):
        check_module(built(Kept), LocalOptions(lr=0.1))


class Recomputed(Net):
    kind = None

    def features(self, x):
        return F.dropout(super().features(x), 0.3, self.training)

    def forward(self, x):
        if self.kind is None:
            return super().forward(x)
        x.requires_grad_()  # without it use_reentrant=True computes no gradient
        return self.head(checkpoint(self.features, x, use_reentrant=self.kind))


@pytest.mark.parametrize("reentrant", [True, False])
def test_activations_are_computed_again_from_the_same_random_numbers(tiny, reentrant):
    again = type("Again", (Recomputed,), {"kind": reentrant})
    results = []
    for make in (Recomputed, again):
        model = built(make)
        assert model.recomputes is (make is again)
        check_module(model, LocalOptions(lr=0.1))
        with tiny.core("sequential", 1, model) as core:
            results.append(train_rounds(core, tiny.method("fedavg", epochs=1)))
    assert torch.equal(results[0][0], results[1][0])


class Constants(Net):
    """A frozen layer, a table of indices, a mask, tied weights, and a head that is not called."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(36, 36).requires_grad_(False)
        self.norm, self.other = nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.tied = nn.Linear(36, 8)
        self.tied.weight = self.body.weight
        self.register_buffer("order", torch.arange(3).flip(0))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def features(self, x):
        x = self.frozen(x.flatten(1))
        return self.norm(torch.tanh(self.body(x) + self.tied(x)))

    def forward(self, x):
        return (super().forward(x)[..., None] + self.mask).amax(-1)[:, self.order]


def test_the_last_model_has_all_names_of_the_state_dict(tmp_path):
    from edgefl.experiment.final_models import read_client_models, read_model, write_client_models, write_model

    model, images = built(Constants), torch.randn(4, 1, 6, 6)
    vector = initial_vector(model, 3) * 1.5
    write_model(vector, model, tmp_path / "final.safetensors")
    write_client_models({7: vector}, model, tmp_path / "clients.safetensors")
    net, client = Constants(), Constants()
    net.load_state_dict(load_file(tmp_path / "final.safetensors"), strict=True)
    found = {name.removeprefix("7."): each for name, each in load_file(tmp_path / "clients.safetensors").items()}
    client.load_state_dict(found, strict=True)
    with torch.no_grad(), using(**PLAIN):
        expected = model.apply_blocks(model.layout.weights(*model.layout.split(vector)), images)
        assert torch.allclose(net.eval()(images), expected, atol=1e-6)
        assert torch.allclose(client.eval()(images), expected, atol=1e-6)
    assert torch.equal(read_model(tmp_path / "final.safetensors", model), vector)
    assert torch.equal(read_client_models(tmp_path / "clients.safetensors", model)[7], vector)
    assert {each.partition(".")[2] for each in model.layout.unused} == {"other.weight", "other.bias"}


class Versioned(Net):
    def _load_from_state_dict(self, state, prefix, metadata, *others):
        if metadata.get("version") != 1:
            raise ValueError("expected a version")
        super()._load_from_state_dict(state, prefix, metadata, *others)


def test_a_class_that_does_not_load_a_plain_state_dict_is_found():
    assert refusal(built(Versioned)) == "ValueError: expected a version"
    assert refusal(built(Constants)) is None


class AlwaysDropped(Net):
    def features(self, x):
        return F.dropout(super().features(x), 0.5)


def test_what_is_drawn_in_evaluation_repeats_and_differs_between_batches():
    model, images = built(AlwaysDropped), torch.randn(1, 1, 6, 6)
    weights = model.layout.frozen(*model.layout.split(initial_vector(model, 0)))
    outputs = []
    with torch.no_grad(), using(**PLAIN):
        for first in (0, 0, 128):
            torch.rand(3)  # a draw of somebody else
            outputs.append(outputs_of(model, weights, images, first))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


class Unstackable(Net):
    def features(self, x):
        return Halved.apply(super().features(x))


def test_jobs_that_vmap_cannot_stack_are_trained_one_by_one_with_a_note(tiny):
    results = []
    for engine in ("sequential", "batched"):
        with tiny.core(engine, 1, built(Unstackable)) as core, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            results.append(train_rounds(core, tiny.method("fedavg", epochs=1)))
    assert torch.equal(results[0][0], results[1][0])
    assert [each for each in heard if each.category is Note and "cannot stack their steps" in str(each.message)]
