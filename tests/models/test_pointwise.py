"""Strided 1×1 convolutions of few channels are computed without a stride, with the same result."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from edgefl.models.slimmable import Pointwise, correct


@pytest.mark.parametrize(("channels", "side"), [(3, 7), (15, 8), (40, 8)])
def test_the_result_and_the_gradients_are_those_of_the_strided_convolution(channels, side):
    layer = nn.Sequential(nn.Conv2d(channels, 8, 1, stride=(2, 3)))
    reference = F.conv2d(images := torch.randn(2, channels, side, side), layer[0].weight, layer[0].bias, (2, 3))
    correct(layer)
    assert isinstance(layer[0], Pointwise)
    found = layer(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, reference)
    gradients = [torch.autograd.grad(each.square().sum(), list(layer.parameters())) for each in (found, reference)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 1, groups=4), nn.Conv2d(4, 8, 1, stride=2, padding=1)], ids=str
)
def test_other_convolutions_stay_as_they_are(layer):
    correct(layer)
    assert type(layer) is nn.Conv2d
