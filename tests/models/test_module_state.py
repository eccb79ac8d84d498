"""Modules that change when they are called: they train if it stays in the call, else the layer is named."""

import copy
import threading
import warnings

import pytest
import torch
from torch import nn

from edgefl.cost.measure import block_figures
from edgefl.errors import UserError
from edgefl.models.mode import using
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import build_model


class Counting(nn.Module):
    """A network whose layer changes itself; ``change`` is called with the layer and its inputs."""

    def __init__(self, change, prepare=lambda layer: None):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.layer = Layer(change)
        prepare(self.layer)

    def forward(self, inputs):
        return self.last(self.layer(torch.relu(self.first(inputs))))


class Layer(nn.Module):
    total = 0

    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, inputs):
        self.change(self, inputs)
        return inputs


def built(make):
    class Made(OrdinaryModel):
        def module(self, sample_shape, classes):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return make()

    return build_model(Made(), (6,), 3)


def count(layer, inputs):
    layer.seen += 1


def count_in_training(layer, inputs):
    layer.seen += int(layer.training)


def moving_mean(layer, inputs):
    layer.seen = 0.9 * layer.seen + 0.1 * inputs.detach().mean(0)


def count_for_all(layer, inputs):
    type(layer).total += 1


def count_in_place(layer, inputs):
    layer.steps += 1


def count_anew(layer, inputs):
    layer.steps = layer.steps + 1


def clamp(layer, inputs):
    with torch.no_grad():
        layer.scale.clamp_(-1, 1)


def renormalise(layer, inputs):
    layer.scale.data = torch.renorm(layer.scale.data, 2, 0, 1.0)


def seen(value):
    return lambda layer: setattr(layer, "seen", value)


def buffer(value, **options):
    return lambda layer: layer.register_buffer("steps", value, **options)


def scale(layer):
    layer.scale = nn.Parameter(torch.ones(4, 8))


ATTRIBUTE, BUFFER, PARAMETER = (
    "changes its attribute 'seen'",
    "changes its buffer 'steps' (int64)",
    "rewrites its parameter",
)
REFUSED = {
    "a number": (count, seen(0), ATTRIBUTE),
    "a number in training": (count_in_training, seen(0), ATTRIBUTE),
    "a list": (lambda layer, inputs: layer.seen.append(float(inputs.mean())), seen([]), ATTRIBUTE),
    "a moving mean in a tensor": (moving_mean, seen(torch.zeros(8)), ATTRIBUTE),
    "an attribute of the class": (count_for_all, seen(0), "changes its attribute 'Layer.total'"),
    "an integer buffer": (count_in_place, buffer(torch.zeros((), dtype=torch.int64)), BUFFER),
    "an integer buffer, anew": (count_anew, buffer(torch.zeros((), dtype=torch.int64)), BUFFER),
    "a buffer outside the state dict": (count_in_place, buffer(torch.zeros(1), persistent=False), "'steps' (float32)"),
    "clamped weights": (clamp, scale, f"{PARAMETER} 'scale'"),
    "weights of limited norm": (renormalise, scale, f"{PARAMETER} 'scale'"),
    "a lock": (lambda layer, inputs: None, lambda layer: setattr(layer, "seen", threading.Lock()), "cannot be copied"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_state_that_no_job_has_is_refused_with_its_layer(kind):
    change, prepare, message = REFUSED[kind]
    with pytest.raises(UserError) as refused:
        built(lambda: Counting(change, prepare))
    assert "the layer 'layer' (Layer) " in str(refused.value)
    assert message in str(refused.value)


def test_an_embedding_of_limited_norm_is_refused_with_its_layer():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.last = nn.Embedding(9, 4, max_norm=1.0), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.last(self.table(inputs).mean(1))

    with pytest.raises(UserError, match=r"the layer 'table' \(Embedding\) rewrites its parameter 'weight'"):
        built(Tokens)


class Grows(nn.Module):
    """Scales by the number of its calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return inputs * self.calls


class Listed(nn.Module):
    """A layer in a plain list, which PyTorch does not find."""

    def __init__(self):
        super().__init__()
        self.others, self.last = [Grows()], nn.Linear(6, 3)

    def forward(self, inputs):
        return self.last(self.others[0](inputs))


class Builds(nn.Module):
    """Makes a layer at its first call."""

    def __init__(self):
        super().__init__()
        self.first, self.last = None, nn.Linear(8, 3)

    def forward(self, inputs):
        self.first = self.first or nn.Linear(6, 8)
        return self.last(self.first(inputs))


@pytest.mark.parametrize(
    ("kind", "message"), [(Listed, r"a layer in a list, a global variable"), (Builds, r"its tensor 'first\.weight'")]
)
def test_what_is_no_part_of_the_module_is_refused(kind, message):
    with pytest.raises(UserError, match=message):
        built(kind)


def keep(layer, inputs):
    layer.seen = inputs


def fill(layer, inputs):
    layer.seen.setdefault(inputs.shape, torch.arange(len(inputs)))


def normed(norm):
    return lambda: nn.Sequential(norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3))


TRAINED = {
    "what it saw last": lambda: Counting(keep, seen(None)),
    "a layer without weights": lambda: Counting(lambda layer, inputs: setattr(layer, "act", nn.ReLU())),
    "a cache": lambda: Counting(fill, lambda layer: setattr(layer, "seen", {})),
    "the older weight_norm": normed(nn.utils.weight_norm),
    "the newer weight_norm": normed(nn.utils.parametrizations.weight_norm),
    "the older spectral_norm": normed(nn.utils.spectral_norm),
    "the newer spectral_norm": normed(nn.utils.parametrizations.spectral_norm),
    "a count in a float buffer": lambda: Counting(count_in_place, buffer(torch.zeros(1))),
    "a count in a float buffer, anew": lambda: Counting(count_anew, buffer(torch.zeros(1))),
    "batch norm without statistics": lambda: nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRAINED)
def test_what_each_call_makes_anew_stays_in_the_call_and_models_can_be_copied(kind):
    model = built(TRAINED[kind])
    weights = model.layout.weights(
        torch.randn(model.layout.parameter_count, requires_grad=True), torch.rand(model.layout.buffer_count)
    )
    inputs = torch.randn(5, 6)
    with using(training=True):
        assert model.apply_blocks(weights, inputs).grad_fn is not None
    with using(training=False):
        copied = copy.deepcopy(model)
        assert torch.equal(copied.apply_blocks(weights, inputs), model.apply_blocks(weights, inputs))
    assert "spectral" in kind or sum(block.macs for block in block_figures(model)) == 6 * 8 + 8 * 3
    layers = [layer for layer in model.modules() if isinstance(layer, Layer)]
    assert all(getattr(layer, "seen", None) is None for layer in layers if kind == "what it saw last")
