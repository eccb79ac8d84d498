"""Residual blocks, which a step may drop (Stochastic Depth)."""

from typing import cast

from torch import Tensor, nn

from edgefl.models.mode import mode
from edgefl.models.norm import Norm
from edgefl.models.slimmable import Conv2d


class Residual(nn.Module):
    """``activation(scale · body(x) + shortcut(x))``; by default with ReLU and the identity.

    ``scale`` is 1; under Stochastic Depth the step's 0/1 draw, and in evaluation the probability of being kept. A
    dropped body is multiplied by zero for batches of clients; a device skips it.
    """

    index: int = 0
    """Index of the residual block in the model, from 0; set by ``BlockModel``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.activation = nn.ReLU() if activation is None else activation

    def forward(self, inputs: Tensor) -> Tensor:
        now = mode()
        if self.index in now.dropped:
            return cast("Tensor", self.activation(self.shortcut(inputs)))
        output = cast("Tensor", self.body(inputs))
        if now.training and now.keep is not None:
            output = output * now.keep[self.index]
        elif not now.training and now.keep_probability is not None:
            output = output * now.keep_probability[self.index]
        return cast("Tensor", self.activation(output + self.shortcut(inputs)))


def _shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(Conv2d(inputs, outputs, 1, stride=stride), norm(outputs))


def basic_block(inputs: int, planes: int, stride: int, norm: Norm) -> Residual:
    """Two 3×3 convolutions (He et al. 2016, Fig. 5 left); a 1×1 convolution on the shortcut if the shape changes."""
    body = nn.Sequential(
        Conv2d(inputs, planes, 3, stride=stride), norm(planes), nn.ReLU(), Conv2d(planes, planes, 3), norm(planes)
    )
    return Residual(body, _shortcut(inputs, planes, stride, norm))


def bottleneck(inputs: int, planes: int, stride: int, norm: Norm, expansion: int = 4) -> Residual:
    """1×1, 3×3 and 1×1 convolutions (He et al. 2016, Fig. 5 right), the stride on the 3×3 as in torchvision."""
    outputs = expansion * planes
    body = nn.Sequential(
        *(Conv2d(inputs, planes, 1), norm(planes), nn.ReLU()),
        *(Conv2d(planes, planes, 3, stride=stride), norm(planes), nn.ReLU()),
        *(Conv2d(planes, outputs, 1), norm(outputs)),
    )
    return Residual(body, _shortcut(inputs, outputs, stride, norm))
