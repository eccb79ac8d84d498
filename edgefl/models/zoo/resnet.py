"""Residual networks: ResNet-18 as split in FedMLB (Kim et al. 2022), ResNet-56 of FedAlign (Mendieta et al. 2022)."""

from typing import Literal

from pydantic import Field
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import Norm, NormKind
from edgefl.models.registry import MODELS, NormedSpec, image_shape
from edgefl.models.residual import basic_block, bottleneck
from edgefl.models.slimmable import Conv2d, Init, Linear, draw_by_fan_out

WIDTHS = (64, 128, 256, 512)
EXPANSION = 4
STEM = 16
UNITS = 6


class _ResNet(NormedSpec):
    init: Init = Field("uniform", description="N(0, 2 / fan-out) as in torchvision's, or PyTorch's")


@MODELS.register("resnet18")
class ResNet18(_ResNet):
    """Stem, four stages of two basic blocks, and the classifier (M = 6); FedAlign's block L is the last stage.

    With the CIFAR stem (3×3, no pooling), group norm and 100 classes it has 11,220,132 parameters; with the ImageNet
    stem (7×7 stride 2, max-pooling) and 10 classes 11,181,642, torchvision's count. Global average pooling is in the
    last block, so that the tap of stage 4 is a feature map; FedMLB includes it in stage 4, which changes no path.
    """

    stem: Literal["cifar", "imagenet"] = Field(default="cifar", description="3×3 without pooling, or 7×7 with it")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("resnet18", sample_shape, least=8)
        norm = self.norms(WIDTHS[0])
        blocks: dict[str, nn.Module] = {"conv1": self._stem(channels, norm)}
        arriving = WIDTHS[0]
        for stage, planes in enumerate(WIDTHS, start=1):
            first = basic_block(arriving, planes, 1 if stage == 1 else 2, norm)
            blocks[f"layer{stage}"] = nn.Sequential(first, basic_block(planes, planes, 1, norm))
            arriving = planes
        blocks["fc"] = Classifier(Linear(arriving, classes, slim_outputs=False), pool=True)
        if self.init == "fan_out":
            draw_by_fan_out(blocks.values())
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=4)

    def _stem(self, channels: int, norm: Norm) -> nn.Module:
        if self.stem == "cifar":
            return nn.Sequential(Conv2d(channels, WIDTHS[0], 3), norm(WIDTHS[0]), nn.ReLU())
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        return nn.Sequential(Conv2d(channels, WIDTHS[0], 7, stride=2), norm(WIDTHS[0]), nn.ReLU(), pool)


@MODELS.register("resnet56")
class ResNet56(_ResNet):
    """3×3 stem of 16 channels, three stages of six bottlenecks (16, 32, 64 planes), and the classifier (M = 5).

    614,452 parameters and 87.24 M layer MACs for 100 classes at 32×32. FedAlign's block L is the third stage.
    """

    norm: NormKind = Field(default="batch", description="group norm or batch norm")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("resnet56", sample_shape, least=8)
        norm = self.norms(STEM)
        blocks: dict[str, nn.Module] = {"conv1": nn.Sequential(Conv2d(channels, STEM, 3), norm(STEM), nn.ReLU())}
        arriving = STEM
        for stage, planes in enumerate((16, 32, 64), start=1):
            units = [bottleneck(arriving, planes, 1 if stage == 1 else 2, norm)]
            arriving = EXPANSION * planes
            units += [bottleneck(arriving, planes, 1, norm) for _ in range(UNITS - 1)]
            blocks[f"layer{stage}"] = nn.Sequential(*units)
        blocks["fc"] = Classifier(Linear(arriving, classes, slim_outputs=False), pool=True)
        if self.init == "fan_out":
            draw_by_fan_out(blocks.values())
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=3)
