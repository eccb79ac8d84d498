"""Strided convolutions of single pixels, for which oneDNN 3 corrupts memory on CPUs.

The gradient of a 1×1 convolution with a stride, fewer than 16 input channels and channels-last images writes past a
buffer (uxlfoundation/oneDNN issue 6035). The same convolution of every n-th pixel without a stride does not.
"""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

LEAST_CHANNELS = 16
"""Convolutions of at least so many input channels are correct."""


def without_stride(inputs: Tensor, weight: Tensor, stride: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """The input and the stride with which to compute an unpadded convolution.

    Args:
        inputs: ``[batch, channels, height, width]``.
        weight: ``[outputs, channels, height, width]``.
        stride: in both directions.

    >>> import torch
    >>> inputs, stride = without_stride(torch.zeros(1, 3, 5, 5), torch.zeros(8, 3, 1, 1), (2, 2))
    >>> tuple(inputs.shape), stride
    ((1, 3, 3, 3), (1, 1))
    """
    _, arriving, height, width = weight.shape
    if height == width == 1 and max(stride) > 1 and arriving < LEAST_CHANNELS:
        return inputs[:, :, :: stride[0], :: stride[1]], (1, 1)
    return inputs, stride


class Pointwise(nn.Conv2d):
    """A convolution that :func:`without_stride` concerns."""

    def forward(self, input: Tensor) -> Tensor:
        """Convolve ``[batch, channels, height, width]``."""
        inputs, stride = without_stride(input, self.weight, self.stride)
        return F.conv2d(inputs, self.weight, self.bias, stride)


def correct(module: nn.Module) -> None:
    """Let the convolutions of a module compute without a stride where that is needed."""
    for layer in module.modules():
        if type(layer) is nn.Conv2d and layer.groups == 1 and layer.kernel_size == (1, 1) and not _padded(layer):
            layer.__class__ = Pointwise


def _padded(layer: nn.Conv2d) -> bool:
    return layer.padding not in ((0, 0), "valid", "same") or cast("str", layer.padding_mode) != "zeros"
