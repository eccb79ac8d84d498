"""ResNet-18 in six blocks, split as in FedMLB (He et al. 2016; Kim et al. 2022)."""

from typing import Literal

from pydantic import Field
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import Norm, NormKind, norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.residual import basic_block
from edgefl.models.slimmable import Conv2d, Init, Linear, draw_by_fan_out

WIDTHS = (64, 128, 256, 512)


@MODELS.register("resnet18")
class ResNet18(ModelSpec):
    """Stem, four stages of two basic blocks, and the classifier (M = 6); FedAlign's block L is the last stage.

    With the CIFAR stem (3×3, no pooling), group norm and 100 classes it has 11,220,132 parameters; with the ImageNet
    stem (7×7 stride 2, max-pooling) and 10 classes 11,181,642, torchvision's count. Global average pooling is in the
    last block, so that the tap of stage 4 is a feature map; FedMLB includes it in stage 4, which changes no path.
    """

    stem: Literal["cifar", "imagenet"] = Field(default="cifar", description="3×3 without pooling, or 7×7 with it")
    norm: NormKind = Field(default="group", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, le=64, description="groups of group norm (2 in FedMLB, 32 in FedADC)")
    init: Init = Field(
        default="uniform",
        description="initial values of convolutions: PyTorch's default of a layer, or N(0, 2 / fan-out), as in "
        "torchvision's ResNets",
    )

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("resnet18", sample_shape, least=8)
        norm = norm_of(self.norm, self.groups, least=WIDTHS[0])
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
