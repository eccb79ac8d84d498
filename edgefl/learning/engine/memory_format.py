"""How images lie in memory while they pass through a model."""

from __future__ import annotations

import torch
from torch import Tensor


def arranged(inputs: Tensor) -> Tensor:
    """A batch of images ``[batch, channels, height, width]`` in the order that its device computes fastest.

    On a CPU that is channels-last: pooling and convolutions vectorise over channels, and the layers hand the order on,
    so arranging the input is enough (the small CNN's step takes two thirds of the time). The rule depends on the device
    alone, because the order decides how sums are rounded. Anything but images passes through.
    """
    if inputs.dim() != 4 or inputs.device.type != "cpu":
        return inputs
    _, channels, height, width = inputs.shape
    if channels > 1:
        return inputs.contiguous(memory_format=torch.channels_last)
    # With one channel both orders hold the same numbers, and only the strides tell the layers which one is meant.
    return inputs.contiguous().as_strided(inputs.shape, (height * width, 1, width, 1))
