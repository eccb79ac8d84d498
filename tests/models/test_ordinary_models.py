"""Ordinary PyTorch modules are split into blocks, called with weights, and trained as PyTorch trains them."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.cost.measure import measure
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.mode import using
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.random_layers import RandomFunctions
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.models.splitting import split

SHAPE = (1, 6, 6)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, inputs):
        return inputs + F.relu(self.norm(self.conv(inputs)))


class Net(nn.Module):
    """What a user writes: plain layers, batch norm, dropout."""

    def __init__(self, classes=3, dropout=0.3):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.middle = nn.Sequential(Residual(8), Residual(8))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(32, classes)

    def forward(self, inputs):
        features = self.pool(self.middle(F.relu(self.norm(self.stem(inputs)))))
        return self.head(self.drop(torch.flatten(features, 1)))


def built(make=Net, shape=SHAPE, classes=3, **options):
    class Made(OrdinaryModel):
        def module(self, sample_shape, classes):
            return make()

    return build_model(Made(**options), shape, classes)


def weights_of(model, vector):
    return model.layout.weights(*model.layout.split(vector))


def test_a_block_begins_at_each_child_with_weights_and_pooling_belongs_to_the_last():
    blocks = split(Net()).blocks
    assert list(blocks) == ["stem", "middle", "head"]
    names = {name: {path.partition(".")[0] for path, _ in block.named_children()} for name, block in blocks.items()}
    assert names == {"stem": {"stem", "norm"}, "middle": {"middle"}, "head": {"pool", "drop", "head"}}


def test_named_blocks_begin_at_the_calls_of_these_submodules():
    assert list(split(Net(), ["stem", "middle.1", "head"]).blocks) == ["stem", "middle_1", "head"]
    with pytest.raises(UserError, match=r"blocks: .* found 'midle'; called are: stem, norm, middle"):
        split(Net(), ["stem", "midle"])


@pytest.mark.parametrize("names", [None, ["stem", "middle.0", "middle.1", "head"]])
@pytest.mark.parametrize("training", [True, False])
def test_the_blocks_compute_what_the_module_computes(names, training):
    model, reference = built(blocks=names), Net().train(training)
    vector = initial_vector(model, 4)
    state = {name: tensor for block in weights_of(model, vector.clone()) for name, tensor in block.items()}
    assert reference.load_state_dict(state, strict=False).unexpected_keys == []
    reference.drop.p = 0.0
    images = torch.randn(5, *SHAPE)
    with torch.no_grad(), using(training=training), RandomFunctions(torch.tensor(0)) as functions:
        functions.dropped = lambda input, shape, p: input
        found = model.apply_blocks(weights_of(model, vector), images)
    assert torch.allclose(found, reference(images), atol=1e-6)
    after = {name: tensor for block in weights_of(model, vector) for name, tensor in block.items()}
    assert all(
        torch.allclose(after[name], tensor, atol=1e-6)
        for name, tensor in reference.state_dict().items()
        if name in after
    )


def test_counters_and_tables_of_indices_do_not_travel():
    class Table(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("order", torch.tensor([2, 0, 1]))
            self.register_buffer("scale", torch.ones(3), persistent=False)

        def forward(self, inputs):
            return super().forward(inputs)[:, self.order] * self.scale

    model = built(Table)
    assert model.layout.size == built().layout.size
    assert {entry.name.rpartition(".")[2] for entry in model.layout.buffers} == {"running_mean", "running_var"}
    cost = measure(model, build_method("fedavg", LocalOptions()), model.depth, 4)
    assert cost.layer_macs > 0


def test_a_recurrent_network_is_called_with_the_weights_that_are_passed():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(5, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, inputs):
            return self.head(self.lstm(inputs)[0][:, -1])

    model = built(Recurrent, (7, 5), 3)
    assert model.depth == 1  # what passes between the layers is a tuple
    vector = initial_vector(model, 3).requires_grad_()
    reference = Recurrent()
    reference.load_state_dict({n: t.detach() for block in weights_of(model, vector) for n, t in block.items()})
    inputs = torch.randn(2, 7, 5)
    found = model.apply_blocks(weights_of(model, vector), inputs)
    assert torch.allclose(found, reference(inputs))
    found.sum().backward()
    assert vector.grad[: 4 * 8 * 5].abs().max() > 0


def test_only_what_is_trained_travels_and_has_a_gradient():
    model = built(trainable=["head", "middle.1.*"])
    assert {entry.name.rpartition(".")[0] for entry in model.layout.entries} == {
        "middle.1.conv",
        "middle.1.norm",
        "head",
    }
    whole = measure(built(), build_method("fedavg", LocalOptions()), 3, 8)
    head = measure(built(trainable=["head"]), build_method("fedavg", LocalOptions()), 3, 8)
    assert head.forward_macs == whole.forward_macs
    assert head.training_flops < 0.5 * whole.training_flops
    with pytest.raises(UserError, match=r"trainable: 'haed' names no parameters; expected submodules, such as: stem"):
        built(trainable=["haed"])


def test_statistics_of_frozen_layers_are_used_and_not_updated():
    model = built(trainable=["head"])
    images, vector = torch.randn(5, *SHAPE), initial_vector(model, 0)
    with torch.no_grad(), RandomFunctions(torch.tensor(0)) as functions:
        functions.dropped = lambda input, shape, p: input
        in_training = model.apply_blocks(weights_of(model, vector), images)
        with using(training=False):
            assert torch.equal(in_training, model.apply_blocks(weights_of(model, vector), images))


def test_a_model_of_blocks_survives_pickling():
    model, images = built(), torch.randn(2, *SHAPE)
    vector = initial_vector(model, 0)
    other = pickle.loads(pickle.dumps(_without_fresh(model)))
    with torch.no_grad(), using(training=False):
        found = other.apply_blocks(weights_of(other, vector), images)
        assert torch.equal(found, model.apply_blocks(weights_of(model, vector), images))


def _without_fresh(model):
    model.fresh = None
    return model


class SecondPlace(Net):
    def __init__(self):
        super().__init__()
        self.kept = [self.head.weight]

    def forward(self, inputs):
        return super().forward(inputs) + self.kept[0].sum()


class Multinomial(Net):
    def forward(self, inputs):
        return super().forward(inputs) + torch.multinomial(torch.ones(3), 3).float()


class Features(Net):
    def forward(self, inputs):
        return self.middle(self.stem(inputs))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (SecondPlace, r"the layer 'head' \(Linear\) keeps its parameter 'weight' in a second place"),
        (Multinomial, r"the model \(Multinomial\) draws random numbers in a way that"),
        (Features, r"expected outputs of shape \(2, 3\) for a batch of shape \(2, 1, 6, 6\), found \(2, 8, 6, 6\)"),
        (lambda: nn.Linear(7, 3), r"cannot be called with a batch of shape \(2, 1, 6, 6\): .*mat1 and mat2"),
    ],
    ids=["second place", "multinomial", "no logits", "shape"],
)
def test_what_cannot_be_made_pure_is_refused_with_its_layer(make, message):
    before = torch.get_rng_state()
    with pytest.raises(UserError, match=message):
        built(make)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_forward_that_depends_on_numbers_is_one_block_and_methods_say_why():
    class Branching(Net):
        def forward(self, inputs):
            return super().forward(inputs if inputs.sum() > 1e9 else inputs * 1)

    model = built(Branching)
    assert (model.depth, "cannot be traced" in model.whole) == (1, True)
    for method in ("FedBR", "FitNet", "TimelyFL"):
        needed = rf"{method} needs a model of several blocks, and this model is one block: Branching\."
        with pytest.raises(UserError, match=needed):
            build_method(method.lower(), LocalOptions()).objective.adapt(model)


def test_a_block_that_begins_with_an_operator_in_place_leaves_its_input_alone():
    class InPlace(Net):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU(inplace=True)

        def forward(self, inputs):
            return self.head(torch.flatten(self.pool(self.act(self.norm(self.stem(inputs)))), 1))

    model = built(InPlace, blocks=["stem", "norm", "act"])
    assert model.copied == {"act"}
    taps = model.taps(weights_of(model, initial_vector(model, 0)), torch.randn(2, *SHAPE))
    assert taps[1].min() < 0


def test_a_missing_extra_is_named(monkeypatch):
    for name in ("peft", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"lora: peft is not installed: python -m pip install -e '\.\[peft\]'"):
        built(lora={"targets": ["head"]})
    with pytest.raises(
        UserError, match=r"transformers is not installed: python -m pip install -e '\.\[transformers\]'"
    ):
        build_model(MODELS["transformers"](transformers="gpt2"), (8,), 3)


class Viewing(Net):
    """Flattens as many tutorials do, which needs channels-first memory."""

    def forward(self, inputs):
        maps = self.pool(self.middle(F.relu(self.norm(self.stem(inputs)))))
        return self.head(self.drop(maps.view(maps.size(0), -1)))


class ChannelsLast(Net):
    def __init__(self):
        super().__init__()
        self.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("make", "order", "names"),
    [
        (Viewing, torch.channels_last, None),
        (Viewing, torch.contiguous_format, ["stem", "middle.1", "head"]),
        (ChannelsLast, torch.contiguous_format, None),
    ],
)
def test_the_order_of_numbers_in_memory_changes_no_result(make, order, names):
    model, plain = built(make, blocks=names), built(Net, blocks=names)
    vector, images = initial_vector(plain, 3), torch.randn(4, *SHAPE)
    assert torch.equal(initial_vector(model, 3), vector)
    results = []
    for each, inputs in ((model, images.to(memory_format=order)), (plain, images)):
        leaf = vector.clone().requires_grad_()
        with using(training=True, track=False), RandomFunctions(torch.tensor(2)):
            logits = each.apply_blocks(weights_of(each, leaf), inputs)
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, torch.tensor([0, 1, 2, 0])), leaf)
        results.append((logits, gradient))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_a_model_of_torchvision_on_other_channels_is_refused():
    with pytest.raises(
        UserError, match="torchvision: torchvision's models take images of three channels, found inputs"
    ):
        build_model(MODELS["torchvision"](torchvision="mobilenet_v3_small"), (1, 32, 32), 10)
