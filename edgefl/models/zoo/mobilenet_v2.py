"""MobileNetV2 for small images, in eight blocks (Sandler et al. 2018; Kim et al. 2022, Table 9)."""

import warnings

from pydantic import Field
from torch import nn

from edgefl.errors import Note
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import Norm, NormKind, norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Conv2d, Linear

STEM = 32
EXPANSION = 6
HEAD = 1280
STAGES = ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 1), (320, 1, 1))
"""Output channels, units, and stride of the first unit of each stage."""

LARGE = 64
"""Pixels of a side from which the ImageNet form is the usual one."""


def inverted_residual(inputs: int, outputs: int, stride: int, expansion: int, norm: Norm) -> nn.Module:
    """1×1 to ``expansion`` times the channels, 3×3 depthwise, 1×1 back; added to the input if shapes are equal."""
    inner = expansion * inputs
    body = nn.Sequential(
        *(Conv2d(inputs, inner, 1), norm(inner), nn.ReLU6()),
        *(Conv2d(inner, inner, 3, stride=stride, groups=inner), norm(inner), nn.ReLU6()),
        *(Conv2d(inner, outputs, 1), norm(outputs)),
    )
    return Residual(body, activation=nn.Identity()) if stride == 1 and inputs == outputs else body


@MODELS.register("mobilenet_v2")
class MobileNetV2(ModelSpec):
    """1×1 stem of 32 channels, seven stages of inverted residuals, a 1×1 head of 1280 and the classifier (M = 8).

    The last stage, head and classifier are one block. FedAlign's block L is the sixth stage.
    """

    norm: NormKind = Field(default="group", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, le=8, description="groups of group norm")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, *sides = image_shape("mobilenet_v2", sample_shape, least=8)
        if min(sides) >= LARGE:
            warnings.warn(
                "the model 'mobilenet_v2' is the form for small images, with 8.8 times the products of "
                "{torchvision: mobilenet_v2}, which is the usual one for images of this size",
                Note,
                stacklevel=1,
            )
        norm = norm_of(self.norm, self.groups, least=8)
        blocks: dict[str, nn.Module] = {
            "stem": nn.Sequential(Conv2d(channels, STEM, 1, padding=1), norm(STEM), nn.ReLU6())
        }
        arriving = STEM
        for number, (outputs, units, stride) in enumerate(STAGES, start=1):
            expansion = 1 if number == 1 else EXPANSION
            stage = [inverted_residual(arriving, outputs, stride, expansion, norm)]
            stage += [inverted_residual(outputs, outputs, 1, expansion, norm) for _ in range(units - 1)]
            blocks[f"stage{number}"] = nn.Sequential(*stage)
            arriving = outputs
        last = blocks.popitem()[1]
        head = nn.Sequential(Conv2d(arriving, HEAD, 1), norm(HEAD), nn.ReLU6())
        classifier = Classifier(Linear(HEAD, classes, slim_outputs=False), pool=True)
        blocks["head"] = nn.Sequential(last, head, classifier)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=6)
