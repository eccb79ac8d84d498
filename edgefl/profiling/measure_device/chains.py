"""Chains of layers of one kind, and arithmetic on whole vectors: each case has one kind of operator."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .timing import Case, Maker, Run, Shape, channels_last

Layer = Callable[[Tensor, Tensor], Tensor]
"""A function of the layer's input and one weight."""


def _chain(layers: Sequence[Layer], shape: Shape, weights: Sequence[Shape], backward: bool) -> Case:
    def prepare(numbers: Maker) -> Run:
        inputs = channels_last(numbers(*shape))
        made = [channels_last(numbers(*each)) for each in weights]

        def forward() -> Tensor:
            result = inputs
            for layer, weight in zip(layers, made):
                result = layer(result, weight)
            return result

        if not backward:
            return forward
        gradient = torch.ones_like(forward())
        leaves = [each.requires_grad_() for each in (inputs, *made)]
        return lambda: torch.autograd.grad(forward(), leaves, gradient, allow_unused=True)

    traffic = 4e-6 * (math.prod(shape) * (len(layers) + 2) * 2 + sum(math.prod(each) for each in weights) * 3)
    return Case(prepare, traffic)


def _both(name: str, layers: Sequence[Layer], shape: Shape, weights: Sequence[Shape]) -> Dict[str, Case]:
    """Return the forward pass of a chain, and its forward and backward pass."""
    cases = (_chain(layers, shape, weights, backward) for backward in (False, True))
    return dict(zip((name, f"{name}, backward"), cases))


def _convolution(kernel: int, groups: int, stride: int = 1) -> Layer:
    return lambda inputs, weight: F.conv2d(inputs, weight, stride=stride, padding=kernel // 2, groups=groups)


def _convolutions() -> Dict[str, Case]:
    shapes = [  # channels, other channels, kernel, groups, side, batch
        *((16, 16, 3, 1, side, batch) for side, batch in ((32, 4), (32, 16), (16, 2))),
        *((24, 24, 3, 1, side, batch) for side, batch in ((32, 2), (16, 8), (8, 16))),
        *((40, 80, 3, 1, side, batch) for side, batch in ((16, 4), (8, 16))),
        *((64, 64, 3, 1, side, batch) for side, batch in ((32, 4), (16, 8), (8, 4))),
        *((96, 192, 3, 1, side, batch) for side, batch in ((16, 4), (8, 8), (4, 8))),
        *((160, 320, 3, 1, side, batch) for side, batch in ((8, 4), (8, 16), (4, 4), (2, 8))),
        *((384, 384, 3, 1, side, batch) for side, batch in ((4, 4), (4, 16), (2, 16))),
        *((16, 80, 1, 1, side, batch) for side, batch in ((32, 4), (32, 16), (16, 8))),
        *((24, 96, 1, 1, side, batch) for side, batch in ((32, 4), (16, 8), (8, 16))),
        *((48, 192, 1, 1, side, batch) for side, batch in ((32, 4), (16, 8), (8, 8))),
        *((96, 384, 1, 1, side, batch) for side, batch in ((16, 8), (8, 8), (4, 16))),
        *((192, 512, 1, 1, side, batch) for side, batch in ((8, 4), (8, 16), (4, 4))),
        *((64, 64, 3, 64, side, batch) for side, batch in ((32, 4), (16, 8))),
        *((192, 192, 3, 192, side, batch) for side, batch in ((32, 4), (16, 4), (8, 8), (4, 4))),
        *((96, 384, 1, 4, side, batch) for side, batch in ((16, 8), (16, 32), (8, 4))),
        *((192, 48, 1, 4, side, batch) for side, batch in ((16, 8), (8, 16), (8, 32))),
        *((384, 128, 1, 4, side, batch) for side, batch in ((8, 8), (4, 32), (4, 8))),
        # The first layer of a network, with three input channels.
        *((3, outputs, 3, 1, 32, batch) for outputs, batch in ((16, 8), (64, 8), (96, 4), (64, 2))),
        *((3, 32, 1, 1, 32, batch) for batch in (4, 16)),
    ]
    cases: Dict[str, Case] = {}
    for few, many, kernel, groups, side, batch in shapes:
        name = f"convolution {few}-{many}x{kernel}x{kernel}/{groups} on {batch}x{side}x{side}"
        weights = [(many, few // groups, kernel, kernel), (few, many // groups, kernel, kernel)]
        cases.update(_both(name, [_convolution(kernel, groups)] * 2, (batch, few, side, side), weights))
    return cases


def _linears() -> Dict[str, Case]:
    cases: Dict[str, Case] = {}
    for side, batch in ((64, 8), (256, 4), (256, 32), (1024, 4), (1024, 32), (512, 16)):
        cases.update(_both(f"linear {side} on {batch}", [F.linear] * 3, (batch, side), [(side, side)] * 3))
    return cases


def _others() -> Dict[str, Case]:
    """Return normalisation, activation and sums, pooling and copies on images of several sizes."""

    def group_norm(inputs: Tensor, weight: Tensor) -> Tensor:
        return F.group_norm(inputs, 2, weight, weight)

    def batch_norm(inputs: Tensor, weight: Tensor) -> Tensor:
        return F.batch_norm(inputs, None, None, weight, weight, True)

    def shuffle(inputs: Tensor, _: Tensor) -> Tensor:
        batch, channels, height, width = inputs.shape
        dealt = inputs.reshape(batch, 4, channels // 4, height, width).transpose(1, 2)
        return dealt.reshape(batch, channels, height, width)

    families: Dict[str, List[Layer]] = {
        "group norm": [group_norm] * 6,
        "batch norm": [batch_norm] * 6,
        "relu and sum": [lambda inputs, _: F.relu(inputs) + inputs] * 4,
        "relu6": [lambda inputs, _: F.relu6(inputs)] * 6,
        "max pool": [lambda inputs, _: F.max_pool2d(inputs, 2)],
        "average pool": [lambda inputs, _: F.avg_pool2d(inputs, 3, 2, 1)],
        "side by side": [lambda inputs, _: torch.cat([inputs, inputs], 1)],
        "shuffle": [shuffle] * 2,
        "mean": [lambda inputs, _: inputs.mean((-2, -1))],
    }
    cases: Dict[str, Case] = {}
    for name, layers in families.items():
        for batch, channels, side in ((2, 16, 16), (4, 64, 8), (8, 16, 32), (8, 96, 32), (16, 256, 8)):
            text = f"{name} on {batch}x{channels}x{side}x{side}"
            cases.update(_both(text, layers, (batch, channels, side, side), [(channels,)] * len(layers)))
    return cases


def _vectors() -> Dict[str, Case]:
    """Return arithmetic on all parameters at once, as in local rules and proximal terms."""

    def prepared(size: int, function: Callable[[Tensor, Tensor], Any]) -> Case:
        def prepare(numbers: Maker) -> Run:
            first, second = numbers(size), numbers(size)
            return lambda: function(first, second)

        return Case(prepare, 16e-6 * size)

    functions: Dict[str, Callable[[Tensor, Tensor], Any]] = {
        "add in place": lambda first, second: first.add_(second, alpha=0.0),
        "scale in place": lambda first, _: first.mul_(1.0),
        "new sum": lambda first, second: first - second,
        "square": lambda first, _: first.pow(2),
        "total": lambda first, _: first.sum(),
        "norm": lambda first, _: torch.linalg.vector_norm(first),
        "join": lambda first, second: torch.cat([first, second]),
        "copy": lambda first, _: first.clone(),
    }
    return {
        f"{name} of {size} numbers": prepared(size, function)
        for name, function in functions.items()
        for size in (1_000, 50_000, 1_000_000, 5_000_000)
    }


def _sequences() -> Dict[str, Case]:
    """Return attention and LSTM layers on sequences of several lengths."""

    def attention(heads: int) -> Layer:
        def layer(inputs: Tensor, _: Tensor) -> Tensor:
            batch, places, width = inputs.shape
            parts = inputs.view(batch, places, heads, width // heads).transpose(1, 2)
            found = F.scaled_dot_product_attention(parts, parts, parts)
            return found.transpose(1, 2).reshape(batch, places, width)

        return layer

    def lstm(hidden: int) -> Layer:
        def layer(inputs: Tensor, weight: Tensor) -> Tensor:
            batch, _, features = inputs.shape
            sides = ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,))
            pieces = torch.split(weight, [math.prod(each) for each in sides])
            state = inputs.new_zeros(1, batch, hidden)
            weights = [piece.view(each) for piece, each in zip(pieces, sides)]
            return torch.lstm(inputs, (state, state), weights, True, 1, 0.0, True, False, True)[0]

        return layer

    cases = {}
    for backward in (False, True):
        end = ", backward" if backward else ""
        for batch, places, width, heads in (
            *((16, 16, 64, 4), (16, 64, 48, 4), (8, 64, 192, 3), (8, 197, 192, 3), (4, 256, 64, 2), (1, 1024, 128, 2)),
        ):
            name = f"attention of {heads} on {batch}x{places}x{width}{end}"
            cases[name] = _chain([attention(heads)] * 2, (batch, places, width), [(1,)] * 2, backward)
        for batch, steps, features, hidden in ((16, 24, 12, 32), (16, 40, 12, 96), (64, 40, 16, 64), (8, 100, 32, 192)):
            weight = (4 * hidden * (features + hidden + 2),)
            name = f"lstm {features}-{hidden} on {batch}x{steps}{end}"
            cases[name] = _chain([lstm(hidden)], (batch, steps, features), [weight], backward)
    return cases


def chains() -> Dict[str, Case]:
    """Return all chains, by name."""
    return {**_convolutions(), **_linears(), **_others(), **_sequences(), **_vectors()}
