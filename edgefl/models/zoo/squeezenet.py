"""SqueezeNet with residual connections, in nine blocks (Iandola et al. 2016; Kim et al. 2022, Table 9)."""

from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import SpatialMean
from edgefl.models.norm import Norm, NormKind, norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Conv2d

STEM = 96
FIRES = (128, 128, 256, 256, 384, 384, 512, 512)
"""Output channels of fire modules 2 … 9."""
POOLED = (4, 8)
"""Fire modules after which the image is halved."""


def _convolution(inputs: int, outputs: int, kernel: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(Conv2d(inputs, outputs, kernel), norm(outputs), nn.ReLU())


class Fire(nn.Module):
    """1×1 to an eighth of the outputs, then 1×1 and 3×3 in parallel, half of the outputs each."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        squeezed = outputs // 8
        self.squeeze = _convolution(inputs, squeezed, 1, norm)
        self.narrow = _convolution(squeezed, outputs // 2, 1, norm)
        self.wide = _convolution(squeezed, outputs // 2, 3, norm)

    def forward(self, inputs: Tensor) -> Tensor:
        squeezed = cast("Tensor", self.squeeze(inputs))
        return torch.cat([cast("Tensor", self.narrow(squeezed)), cast("Tensor", self.wide(squeezed))], dim=1)


@MODELS.register("squeezenet")
class SqueezeNet(ModelSpec):
    """Stem of 96 channels with pooling, fire modules 2 to 9 and a 1×1 convolution to the classes (M = 9).

    Modules 3, 5 and 7 are added to their inputs; module 9 and the classifying convolution are one block. FedAlign's
    block L is the seventh module. At a smaller width, both halves of a module keep their leading channels.
    """

    norm: NormKind = Field(default="group", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, le=16, description="groups of group norm")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("squeezenet", sample_shape, least=8)
        norm = norm_of(self.norm, self.groups, least=16)
        blocks: dict[str, nn.Module] = {"stem": nn.Sequential(_convolution(channels, STEM, 3, norm), nn.MaxPool2d(2))}
        arriving = STEM
        for number, outputs in enumerate(FIRES, start=2):
            module: nn.Module = Fire(arriving, outputs, norm)
            if number in {3, 5, 7}:
                module = Residual(module, activation=nn.Identity())
            blocks[f"fire{number}"] = nn.Sequential(module, nn.MaxPool2d(2)) if number in POOLED else module
            arriving = outputs
        last = blocks.popitem()[1]
        blocks["head"] = nn.Sequential(last, Conv2d(arriving, classes, 1, bias=True, slim_outputs=False), SpatialMean())
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=6)
