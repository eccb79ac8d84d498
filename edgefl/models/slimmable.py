"""Convolutions and linear layers that can run with only their leading channels (FedAlign section 3, GradAug)."""

from collections.abc import Iterable
from typing import Literal, cast

import torch.nn.functional as F
from torch import Tensor, nn

from edgefl.errors import UserError
from edgefl.models.mode import mode

Init = Literal["uniform", "fan_out"]
"""Initial values of a model's convolutions: PyTorch's default of a layer, or N(0, 2 / fan-out)."""

CHANNEL_UNIT = 8
"""Slimmed layers keep a multiple of this number of channels."""


def channels(full: int, width: float) -> int:
    """The number of ``full`` channels that a layer keeps at ``width``: the nearest multiple of 8, at least one unit.

    A result below 90 % of the exact share is raised by one unit, and no layer has more channels than ``full``.

    >>> channels(64, 0.25), channels(100, 0.25), channels(32, 0.8), channels(4, 0.25), channels(10, 1.0)
    (16, 24, 24, 4, 10)
    """
    if width >= 1:
        return full
    exact = full * width
    kept = max(CHANNEL_UNIT, int(exact + CHANNEL_UNIT / 2) // CHANNEL_UNIT * CHANNEL_UNIT)
    if kept < 0.9 * exact:
        kept += CHANNEL_UNIT
    return min(kept, full)


def draw_by_fan_out(blocks: Iterable[nn.Module]) -> None:
    """Let all convolutions of these blocks start from N(0, 2 / fan-out), as ``fan_out`` of each of them does."""
    for module in (each for block in blocks for each in block.modules()):
        if isinstance(module, Conv2d):
            module.fan_out = True


def no_narrower() -> UserError:
    """The error for slimming grouped convolutions: their leading channels do not form a network."""
    return UserError("a model with grouped convolutions (shufflenet) has no sub-network of smaller width")


class Conv2d(nn.Conv2d):
    """A 2-D convolution of the leading channels; parameters as of ``torch.nn.Conv2d``, padding keeps the size."""

    def __init__(
        self,
        inputs: int,  # channels of the full-width input
        outputs: int,  # channels of the full-width output
        kernel: int,
        *,
        stride: int = 1,
        # zeros around the image; half the kernel by default, which keeps the size at stride 1
        padding: int | None = None,
        groups: int = 1,  # number of channel groups that do not mix; equal to inputs for depthwise
        bias: bool = False,
        # a narrower width keeps fewer outputs; off for a layer whose outputs are the classes
        slim_outputs: bool = True,
        fan_out: bool = False,  # initialise by N(0, 2 / fan-out), bias 0, instead of PyTorch's uniform default
    ) -> None:
        pad = kernel // 2 if padding is None else padding
        super().__init__(inputs, outputs, kernel, stride=stride, padding=pad, groups=groups, bias=bias)
        self.slim_outputs, self.fan_out = slim_outputs, fan_out

    def reset_parameters(self) -> None:
        """Do nothing: ``initial_vector`` sets the initial values, and global generators must not be used."""

    def forward(self, inputs: Tensor) -> Tensor:
        width = mode().width
        weight, bias, groups = self.weight, self.bias, self.groups
        if width < 1:
            arriving = inputs.shape[1]
            if groups == 1:
                kept = channels(self.out_channels, width) if self.slim_outputs else self.out_channels
                weight = weight[:kept, :arriving]
            elif groups == self.in_channels == self.out_channels:
                kept = groups = arriving
                weight = weight[:kept]
            else:
                raise no_narrower()
            bias = None if bias is None else bias[:kept]
        stride: tuple[int, ...] = self.stride
        if groups == 1 and self.padding == (0, 0):
            inputs, stride = without_stride(inputs, weight, stride)
        return F.conv2d(inputs, weight, bias, stride, self.padding, self.dilation, groups)


class Linear(nn.Linear):
    """A linear layer of the leading features; parameters as of ``torch.nn.Linear``, options of :class:`Conv2d`."""

    def __init__(self, inputs: int, outputs: int, *, slim_outputs: bool = True) -> None:
        super().__init__(inputs, outputs)
        self.slim_outputs = slim_outputs

    def reset_parameters(self) -> None:
        """Do nothing: ``initial_vector`` sets the initial values, and global generators must not be used."""

    def forward(self, inputs: Tensor) -> Tensor:
        width = mode().width
        if width >= 1:
            return F.linear(inputs, self.weight, self.bias)
        kept = channels(self.out_features, width) if self.slim_outputs else self.out_features
        return F.linear(inputs, self.weight[:kept, : inputs.shape[-1]], self.bias[:kept])


def without_stride(inputs: Tensor, weight: Tensor, stride: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """The input and the stride with which to compute an unpadded convolution of ``[batch, channels, height, width]``.

    oneDNN 3 corrupts memory on CPUs: the gradient of a 1×1 convolution with a stride, fewer than 16 input channels and
    channels-last images writes past a buffer (uxlfoundation/oneDNN issue 6035). That of every n-th pixel does not.
    """
    _, arriving, height, width = weight.shape
    if height == width == 1 and max(stride) > 1 and arriving < 16:
        return inputs[:, :, :: stride[0], :: stride[1]], (1, 1)
    return inputs, stride


class Pointwise(nn.Conv2d):
    """A convolution that :func:`without_stride` concerns."""

    def forward(self, input: Tensor) -> Tensor:
        inputs, stride = without_stride(input, self.weight, self.stride)
        return F.conv2d(inputs, self.weight, self.bias, stride)


def correct(module: nn.Module) -> None:
    """Let the convolutions of a module compute without a stride where that is needed."""
    for layer in module.modules():
        plain = type(layer) is nn.Conv2d and layer.groups == 1 and cast("str", layer.padding_mode) == "zeros"
        if plain and layer.kernel_size == (1, 1) and layer.padding in ((0, 0), "valid", "same"):
            layer.__class__ = Pointwise
