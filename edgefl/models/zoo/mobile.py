"""Networks for phones and small images: MobileNetV2, ShuffleNet and SqueezeNet (as in Kim et al. 2022, Table 9)."""

import warnings
from typing import cast

import torch
from torch import Tensor, nn

from edgefl.errors import Note
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier, SpatialMean
from edgefl.models.mode import mode
from edgefl.models.norm import Norm
from edgefl.models.registry import MODELS, NormedSpec, image_shape
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Conv2d, Linear, no_narrower

MOBILE_STEM = 32
EXPANSION = 6
HEAD = 1280
MOBILE_STAGES = ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 1), (320, 1, 1))
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
class MobileNetV2(NormedSpec):
    """1×1 stem of 32 channels, seven stages of inverted residuals, a 1×1 head of 1280 and the classifier (M = 8).

    The last stage, head and classifier are one block. FedAlign's block L is the sixth stage.
    """

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, *sides = image_shape("mobilenet_v2", sample_shape, least=8)
        if min(sides) >= LARGE:
            warnings.warn(
                "the model 'mobilenet_v2' is the form for small images, with 8.8 times the products of "
                "{torchvision: mobilenet_v2}, which is the usual one for images of this size",
                Note,
                stacklevel=1,
            )
        norm = self.norms(8)
        stem = nn.Sequential(Conv2d(channels, MOBILE_STEM, 1, padding=1), norm(MOBILE_STEM), nn.ReLU6())
        blocks: dict[str, nn.Module] = {"stem": stem}
        arriving = MOBILE_STEM
        for number, (outputs, units, stride) in enumerate(MOBILE_STAGES, start=1):
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


SHUFFLE_STEM = 24
GROUPS = 3
SHUFFLE_STAGES = ((240, 4), (480, 8), (960, 4))
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
    groups = 1 if inputs == SHUFFLE_STEM else GROUPS
    body = nn.Sequential(
        *(Conv2d(inputs, inner, 1, groups=groups), norm(inner), nn.ReLU(), ChannelShuffle()),
        *(Conv2d(inner, inner, 3, stride=stride, groups=inner), norm(inner)),
        *(Conv2d(inner, made, 1, groups=GROUPS), norm(made)),
    )
    return Downsampling(body) if stride == 2 else Residual(body)


@MODELS.register("shufflenet")
class ShuffleNet(NormedSpec):
    """3×3 stem of 24 channels, stages of 240, 480 and 960 channels with 4, 8 and 4 units, and the classifier (M = 5).

    Its grouped convolutions have no narrower sub-network, so FedAlign and GradAug cannot train it.
    """

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("shufflenet", sample_shape, least=8)
        norm = self.norms(12)
        stem = nn.Sequential(Conv2d(channels, SHUFFLE_STEM, 3), norm(SHUFFLE_STEM), nn.ReLU())
        blocks: dict[str, nn.Module] = {"stem": stem}
        arriving = SHUFFLE_STEM
        for number, (outputs, units) in enumerate(SHUFFLE_STAGES, start=2):
            stage = [shuffle_unit(arriving, outputs, 2, norm)]
            stage += [shuffle_unit(outputs, outputs, 1, norm) for _ in range(units - 1)]
            blocks[f"stage{number}"] = nn.Sequential(*stage)
            arriving = outputs
        blocks["fc"] = Classifier(Linear(arriving, classes, slim_outputs=False), pool=True)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=3)


SQUEEZE_STEM = 96
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
class SqueezeNet(NormedSpec):
    """Stem of 96 channels with pooling, fire modules 2 to 9 and a 1×1 convolution to the classes (M = 9).

    Modules 3, 5 and 7 are added to their inputs; module 9 and the classifying convolution are one block. FedAlign's
    block L is the seventh module. At a smaller width, both halves of a module keep their leading channels.
    """

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("squeezenet", sample_shape, least=8)
        norm = self.norms(16)
        stem = nn.Sequential(_convolution(channels, SQUEEZE_STEM, 3, norm), nn.MaxPool2d(2))
        blocks: dict[str, nn.Module] = {"stem": stem}
        arriving = SQUEEZE_STEM
        for number, outputs in enumerate(FIRES, start=2):
            module: nn.Module = Fire(arriving, outputs, norm)
            if number in {3, 5, 7}:
                module = Residual(module, activation=nn.Identity())
            blocks[f"fire{number}"] = nn.Sequential(module, nn.MaxPool2d(2)) if number in POOLED else module
            arriving = outputs
        last = blocks.popitem()[1]
        blocks["head"] = nn.Sequential(last, Conv2d(arriving, classes, 1, bias=True, slim_outputs=False), SpatialMean())
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=6)
