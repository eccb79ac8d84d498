"""Whole training steps of four small networks with different architectures."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List

import torch
import torch.nn.functional as F
from torch import Tensor

from .timing import Case, Maker, Run, Shape, channels_last

Weigh = Callable[..., Tensor]
"""Returns a network's next weight of a shape."""

Network = Callable[[Weigh, Tensor], Tensor]
"""Computes logits from images and weights, which it requests one by one."""

STEP = "step of "
"""All other cases are chains of layers."""


def _layer(
    weigh: Weigh, inputs: Tensor, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, norm: str = "group"
) -> Tensor:
    weight = weigh(outputs, inputs.shape[1] // groups, kernel, kernel)
    made = F.conv2d(inputs, weight, stride=stride, padding=kernel // 2, groups=groups)
    if norm == "group":
        return F.group_norm(made, 2, weigh(outputs), weigh(outputs))
    return F.batch_norm(made, None, None, weigh(outputs), weigh(outputs), True)


def _plain(weigh: Weigh, images: Tensor) -> Tensor:
    for channels in (16, 32):
        made = F.conv2d(images, weigh(channels, images.shape[1], 3, 3), weigh(channels), padding=1)
        images = F.relu(F.max_pool2d(made, 2))
    flat = images.flatten(1)
    flat = F.relu(F.linear(flat, weigh(64, flat.shape[1]), weigh(64)))
    return F.linear(flat, weigh(10, 64), weigh(10))


def _residual(weigh: Weigh, images: Tensor) -> Tensor:
    """Eight wide residual units of two 3x3 convolutions each.

    Its 7.8 million parameters stay below 32 MiB: glibc takes each larger block anew from the system, whose pages cost
    many times what the arithmetic on them does.
    """
    made = F.relu(_layer(weigh, images, 64, 3))
    for stage, channels in enumerate((64, 128, 256, 384)):
        for unit in range(2):
            stride = 2 if stage and not unit else 1
            inner = _layer(weigh, F.relu(_layer(weigh, made, channels, 3, stride=stride)), channels, 3)
            past = made if stride == 1 else _layer(weigh, made, channels, 1, stride=stride)
            made = F.relu(inner + past)
    return F.linear(made.mean((-2, -1)), weigh(10, 384), weigh(10))


def _fire(weigh: Weigh, images: Tensor) -> Tensor:
    """Narrow 1x1 convolutions, each followed by parallel 1x1 and 3x3 convolutions."""

    def layer(inputs: Tensor, outputs: int, kernel: int) -> Tensor:
        return F.relu(_layer(weigh, inputs, outputs, kernel, norm="batch"))

    made = F.max_pool2d(layer(images, 96, 3), 2)
    for number, channels in enumerate((128, 128, 256, 256, 384, 384, 512, 512)):
        squeezed = layer(made, channels // 8, 1)
        made = torch.cat([layer(squeezed, channels // 2, kernel) for kernel in (1, 3)], 1)
        if number in (2, 6):
            made = F.max_pool2d(made, 2)
    return F.conv2d(made, weigh(10, 512, 1, 1), weigh(10)).mean((-2, -1))


def _inverted(weigh: Weigh, images: Tensor) -> Tensor:
    """Depthwise convolutions between 1x1 convolutions that increase and reduce the channels."""
    made = F.relu6(_layer(weigh, images, 32, 1))
    stages = ((16, 1, 1), (24, 2, 1), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2))
    for outputs, units, first in stages:
        for unit in range(units):
            arriving, stride = made.shape[1], 1 if unit else first
            wide = 6 * arriving
            inner = F.relu6(_layer(weigh, made, wide, 1))
            inner = F.relu6(_layer(weigh, inner, wide, 3, stride=stride, groups=wide))
            inner = _layer(weigh, inner, outputs, 1)
            made = made + inner if stride == 1 and arriving == outputs else inner
    made = F.relu6(_layer(weigh, made, 1280, 1))
    return F.linear(made.mean((-2, -1)), weigh(10, 1280), weigh(10))


def _shapes(network: Network, numbers: Maker) -> List[Shape]:
    shapes: List[Shape] = []

    def weigh(*shape: int) -> Tensor:
        shapes.append(shape)
        return numbers(*shape)

    with torch.no_grad():
        network(weigh, numbers(1, 3, 32, 32))
    return shapes


def _step(network: Network, batch: int, part: str, megabytes: float) -> Case:
    """Loss, gradient with respect to one flat vector of parameters, update.

    ``part`` may be ``proximal``: with a proximal term, or ``forward``: without gradient and update.
    """

    def prepare(numbers: Maker) -> Run:
        shapes = _shapes(network, numbers)
        sizes = [math.prod(shape) for shape in shapes]
        parameters, anchor = numbers(sum(sizes)), numbers(sum(sizes))
        images = channels_last(numbers(batch, 3, 32, 32))
        labels = torch.zeros(batch, dtype=torch.int64, device=images.device)

        def loss_at(point: Tensor) -> Tensor:
            weights = (_viewed(*each) for each in zip(torch.split(point, sizes), shapes))
            return F.cross_entropy(network(lambda *_: next(weights), images), labels)

        def run() -> Any:
            leaf = parameters.detach().requires_grad_()
            loss = loss_at(leaf)
            if part == "proximal":
                loss = loss + 0.005 * (leaf - anchor).pow(2).sum()
            (gradient,) = torch.autograd.grad(loss, leaf)
            # A learning rate of 0 keeps the numbers constant: values that grow or vanish would change the speed.
            return parameters.add_(gradient, alpha=0.0)

        return (lambda: loss_at(parameters)) if part == "forward" else run

    return Case(prepare, megabytes)


def _viewed(piece: Tensor, shape: Shape) -> Tensor:
    """Kernels are stored channels-last."""
    if len(shape) != 4:
        return piece.reshape(shape)
    outputs, inputs, height, width = shape
    return piece.reshape(outputs, height, width, inputs).movedim(-1, -3)


def steps() -> Dict[str, Case]:
    """Return all steps, by name."""
    networks = (
        ("plain", _plain, ((8, "", 20), (32, "", 40), (64, "", 60), (32, "proximal", 40), (32, "forward", 30))),
        ("fire", _fire, ((4, "", 60), (32, "", 300), (16, "proximal", 180), (8, "forward", 40))),
        ("inverted", _inverted, ((4, "", 90), (16, "proximal", 260), (8, "forward", 60))),
        ("residual", _residual, ((2, "", 280), (16, "", 600), (8, "proximal", 380), (4, "forward", 200))),
    )
    return {
        f"{STEP}{name}, batch {batch}{part and ', '}{part}": _step(network, batch, part, megabytes)
        for name, network, sizes in networks
        for batch, part, megabytes in sizes
    }
