"""The last block of a model: from a feature map to features, and from features to logits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, fx, nn


class Classifier(nn.Module):
    """The last block: computes features from a feature map, without parameters, and logits from features."""

    def __init__(self, layer: nn.Module, *, pool: bool) -> None:
        super().__init__()
        self.layer, self.pool = layer, pool

    def reading(self, layer: nn.Module) -> Classifier:
        """Another block that computes the same features and passes them to ``layer``."""
        return type(self)(layer, pool=self.pool)

    def embed(self, tap: Tensor) -> Tensor:
        """Features ``[batch, features]`` of the tap before this block: its spatial mean, or the flattened tap."""
        return torch.flatten(tap.mean(dim=(-2, -1)) if self.pool else tap, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return cast("Tensor", self.layer(self.embed(inputs)))


class SpatialMean(nn.Module):
    """The mean over the image of each channel's map."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(dim=(-2, -1))


def ending_in(block: nn.Module, make: Callable[[int], nn.Module]) -> nn.Module:
    """A copy of a model's last block; ``make`` creates its last layer from the number of input features.

    The spatial mean of a 1×1 convolution is the convolution of the mean, so its features are those of the mean.

    >>> other = ending_in(nn.Sequential(nn.Flatten(), nn.Linear(18, 8), nn.ReLU(), nn.Linear(8, 3)), nn.LayerNorm)
    >>> other[-1].normalized_shape, tuple(other(torch.zeros(5, 2, 3, 3)).shape)
    ((8,), (5, 8))

    Raises:
        TypeError: the block's last layer is not linear.
    """
    if isinstance(block, nn.Linear):
        return make(block.in_features)
    if isinstance(block, Classifier):
        return block.reading(ending_in(block.layer, make))
    if isinstance(block, nn.Sequential) and len(block) > 0:
        *before, last = block
        if isinstance(last, SpatialMean) and before and _pointwise(before[-1]):
            end: tuple[nn.Module, ...] = (SpatialMean(), make(cast("int", before.pop().in_channels)))
        else:
            end = (ending_in(last, make),)
        return nn.Sequential(*copy.deepcopy(before), *end)
    if isinstance(block, fx.GraphModule):  # of an own model that was split
        (last,) = next(node for node in block.graph.nodes if node.op == "output").args
        if isinstance(last, fx.Node) and last.op == "call_module":
            made = copy.deepcopy(block)
            made.set_submodule(str(last.target), ending_in(block.get_submodule(str(last.target)), make))
            return made
    raise TypeError(f"{type(block).__name__} does not end with a linear layer")


def _pointwise(module: nn.Module) -> bool:
    if not isinstance(module, nn.Conv2d) or module.groups != 1:
        return False
    return module.kernel_size == module.stride == (1, 1) and module.padding == (0, 0)
