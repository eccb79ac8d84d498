"""ShuffleNet v1 with three groups for small images, in five blocks (Zhang et al. 2018; Kim et al. 2022, Table 9)."""

from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.mode import mode
from edgefl.models.norm import Norm, NormKind, norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Conv2d, Linear, no_narrower

STEM = 24
GROUPS = 3
STAGES = ((240, 4), (480, 8), (960, 4))
"""Output channels and units of stages 2, 3 and 4."""


class ChannelShuffle(nn.Module):
    """Distributes the channels of each group over all groups, so that successive grouped convolutions mix them."""

    def forward(self, inputs: Tensor) -> Tensor:
        if mode().width < 1:
            raise no_narrower()
        batch, channels, height, width = inputs.shape
        dealt = inputs.reshape(batch, GROUPS, channels // GROUPS, height, width).transpose(1, 2)
        return dealt.reshape(batch, channels, height, width)


class Downsampling(nn.Module):
    """A unit of stride 2: the averaged input and the body's output concatenated, then ReLU."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.average = nn.AvgPool2d(3, stride=2, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(torch.cat([cast("Tensor", self.average(inputs)), cast("Tensor", self.body(inputs))], dim=1))


def shuffle_unit(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    """Grouped 1×1 to a quarter, shuffle, 3×3 depthwise, grouped 1×1; the first 1×1 of the network is not grouped."""
    inner = outputs // 4
    made = outputs - inputs if stride == 2 else outputs
    body = nn.Sequential(
        *(Conv2d(inputs, inner, 1, groups=1 if inputs == STEM else GROUPS), norm(inner), nn.ReLU(), ChannelShuffle()),
        *(Conv2d(inner, inner, 3, stride=stride, groups=inner), norm(inner)),
        *(Conv2d(inner, made, 1, groups=GROUPS), norm(made)),
    )
    return Downsampling(body) if stride == 2 else Residual(body)


@MODELS.register("shufflenet")
class ShuffleNet(ModelSpec):
    """3×3 stem of 24 channels, stages of 240, 480 and 960 channels with 4, 8 and 4 units, and the classifier (M = 5).

    Its grouped convolutions have no narrower sub-network, so FedAlign and GradAug cannot train it.
    """

    norm: NormKind = Field(default="group", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, le=12, description="groups of group norm")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("shufflenet", sample_shape, least=8)
        norm = norm_of(self.norm, self.groups, least=12)
        blocks: dict[str, nn.Module] = {"stem": nn.Sequential(Conv2d(channels, STEM, 3), norm(STEM), nn.ReLU())}
        arriving = STEM
        for number, (outputs, units) in enumerate(STAGES, start=2):
            stage = [shuffle_unit(arriving, outputs, 2, norm)]
            blocks[f"stage{number}"] = nn.Sequential(
                *stage, *(shuffle_unit(outputs, outputs, 1, norm) for _ in range(units - 1))
            )
            arriving = outputs
        blocks["fc"] = Classifier(Linear(arriving, classes, slim_outputs=False), pool=True)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=3)
