import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.models.mode import using
from edgefl.models.registry import MODELS, build_model, initial_vector
from edgefl.models.slimmable import Conv2d, Linear, channels


@given(st.integers(1, 2048), st.floats(0.01, 0.999))
def test_slimmed_channels_are_a_multiple_of_eight_near_the_share(full, width):
    kept = channels(full, width)
    assert 1 <= kept <= full
    if kept < full:
        assert kept % 8 == 0
        assert kept >= min(0.9 * full * width, full)
        assert kept <= max(8, 1.1 * full * width + 8)


def test_a_slim_convolution_uses_the_leading_weights():
    layer = Conv2d(32, 64, 3, bias=True)
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
        inputs = torch.randn(2, 8, 5, 5)
        with using(width=0.25):
            slim = layer(inputs)
        assert torch.equal(slim, F.conv2d(inputs, layer.weight[:16, :8], layer.bias[:16], padding=1))


def test_a_slim_depthwise_convolution_keeps_each_channel_to_itself():
    layer = Conv2d(32, 32, 3, groups=32)
    with torch.no_grad():
        layer.weight.normal_()
        inputs = torch.randn(2, 8, 5, 5)
        with using(width=0.25):
            slim = layer(inputs)
        assert torch.equal(slim, F.conv2d(inputs, layer.weight[:8], padding=1, groups=8))


def test_the_classifier_keeps_all_its_outputs():
    layer = Linear(64, 10, slim_outputs=False)
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
        inputs = torch.randn(2, 16)
        with using(width=0.25):
            assert torch.allclose(layer(inputs), inputs @ layer.weight[:, :16].T + layer.bias, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("cnn", 0.25), ("squeezenet", 0.8), ("resnet56", 0.25),
        *(pytest.param(name, 0.25, marks=pytest.mark.full) for name in ("resnet18", "vgg9", "mobilenet_v2")),
    ],
)  # fmt: skip
def test_narrower_networks_reach_the_classes_and_train_leading_channels_only(name, width):
    model = build_model(MODELS[name](), (3, 32, 32), 5)
    vector = initial_vector(model, 0)
    parameters, buffers = model.layout.split(vector)
    leaf = parameters.clone().requires_grad_()
    before = buffers.clone()
    with using(width=width):
        logits = model.apply_blocks(model.layout.weights(leaf, buffers), torch.randn(2, 3, 32, 32))
    assert logits.shape == (2, 5)
    (gradient,) = torch.autograd.grad(logits.square().sum(), leaf)
    assert torch.equal(buffers, before)
    for entry in model.layout.parameters:
        piece = gradient[entry.start : entry.start + entry.numel].view(entry.shape)
        if entry.shape[0] not in (5,) and channels(entry.shape[0], width) < entry.shape[0] and name != "squeezenet":
            assert (piece[channels(entry.shape[0], width) :] == 0).all(), entry


def test_grouped_convolutions_have_no_narrower_network():
    model = build_model(MODELS["shufflenet"](), (3, 32, 32), 5)
    with using(width=0.5), pytest.raises(UserError, match="grouped"):
        model(torch.zeros(1, 3, 32, 32))
