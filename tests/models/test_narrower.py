"""Narrower networks: their sizes by hand, that they compute what the whole one does with zeros, and refusals."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.models.narrower import Cut, kept_count
from edgefl.models.registry import MODELS, build_model, initial_vector


def model(*layers: nn.Module, shape=(3, 8, 8), classes=4) -> BlockModel:
    return BlockModel({"all": nn.Sequential(*layers)}, sample_shape=shape, classes=classes, align_block=1)


class Skipping(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, inputs):
        return torch.cat([inputs, inputs + self.body(inputs)], dim=1)


class Split(nn.Module):
    def forward(self, inputs):
        return inputs.view(len(inputs), 2, -1, *inputs.shape[2:]).transpose(1, 2).reshape(inputs.shape)


def test_numbers_of_tensors_are_those_by_hand():
    whole = model(
        nn.Conv2d(3, 10, 3, padding=1), nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 10, 3, groups=10, padding=1),
        Skipping(nn.Conv2d(10, 10, 1)), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(80, 6), nn.GELU(), nn.Linear(6, 4),
    )  # fmt: skip
    cut = Cut(whole, 0.3)
    sizes = [3 * 3 * 9 + 3, 4 * 3, 3 * 9 + 3, 3 * 3 + 3, 2 * 24 + 2, 4 * 2 + 4]
    assert cut.model.layout.size == sum(sizes)
    kept = set(cut.places().tolist())
    weight = whole.layout.weights(*whole.layout.split(torch.arange(whole.layout.size)))[0]["7.weight"]
    # The concatenated maps are 10 and again 10 channels of 4 positions each; two of six outputs are kept.
    expected = torch.zeros(6, 80, dtype=torch.bool)
    expected[:2, :12] = expected[:2, 40:52] = True
    assert [[int(number) in kept for number in row] for row in weight] == expected.tolist()


@pytest.mark.parametrize(
    ("name", "shape"), [("mlp", (1, 8, 8)), ("cnn", (1, 16, 16)), ("cnn1d", (2, 64)), ("vgg9", (3, 16, 16))]
)
@pytest.mark.parametrize("shift", [0, 1000])
def test_a_narrower_network_computes_what_the_whole_one_does_without_the_other_channels(name, shape, shift):
    """Without norms, a network whose other channels are all zero computes the same as the one without them."""
    options = {"norm": "batch"} if name == "vgg9" else {}
    whole = build_model(MODELS[name](**options), shape, 5)
    cut = Cut(whole, 0.5)
    vector = initial_vector(whole, 1)
    places = cut.places(shift)
    zeros = torch.zeros_like(vector)
    zeros[places] = vector[places]
    inputs = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))

    def computed(network, numbers):
        with torch.no_grad(), using(training=False, track=False):
            return network.apply_blocks(network.layout.weights(*network.layout.split(numbers)), inputs)

    # Batch norm of a channel of zeros with mean 0 and shift 0 is zero.
    torch.testing.assert_close(computed(cut.model, vector[places]), computed(whole, zeros), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("squeezenet", {}),
        *(
            pytest.param(*each, marks=pytest.mark.full)
            for each in (("resnet18", {"norm": "batch"}), ("mobilenet_v2", {}))
        ),
        pytest.param("resnet56", {"norm": "group"}, marks=pytest.mark.full),
    ],
)
def test_the_models_of_images_can_be_cut(name, options):
    whole = build_model(MODELS[name](**options), (3, 32, 32), 10)
    cut = Cut(whole, 0.25)
    assert cut.model.layout.size < whole.layout.size / 10
    assert len(cut.places(3).unique()) == cut.model.layout.size


def test_the_window_moves_by_one_and_wraps():
    whole = model(nn.Conv2d(3, 5, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 4, bias=False))
    cut = Cut(whole, 0.4)
    channels = [(cut.places(shift)[:6] // 3).unique(sorted=False).tolist() for shift in range(6)]
    assert [sorted(each) for each in channels] == [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [0, 1]]


@settings(max_examples=20, deadline=None)
@given(first=st.integers(1, 9), second=st.integers(1, 9), share=st.floats(0.01, 1), shift=st.integers(0, 100))
def test_every_place_is_taken_once_and_channels_are_rounded_up(first, second, share, shift):
    assume(first + second > 2)
    whole = model(nn.Conv2d(3, first, 3), nn.Flatten(), nn.Linear(36 * first, second), nn.Linear(second, 4))
    cut = Cut(whole, share)
    one, two = kept_count(first, share), kept_count(second, share)
    assert cut.model.layout.size == 28 * one + 36 * one * two + two + 4 * two + 4
    assert len(cut.places(shift).unique()) == cut.model.layout.size


def test_an_operator_that_mixes_channels_is_refused_with_its_layer():
    whole = model(
        nn.Conv2d(3, 8, 3), Split(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    with pytest.raises(UserError, match=r"the layer 'all\.1' applies 'view'"):
        Cut(whole, 0.5)
    grouped = model(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Flatten(), nn.Linear(128, 4))
    with pytest.raises(UserError, match=r"the layer 'all\.1' applies 'convolution'"):
        Cut(grouped, 0.5)


def test_a_model_without_hidden_channels_is_refused():
    with pytest.raises(UserError, match="no layer has channels that can be left out"):
        Cut(model(nn.Flatten(), nn.Linear(192, 4)), 0.5)
