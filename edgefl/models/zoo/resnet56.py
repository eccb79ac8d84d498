"""ResNet-56 in bottleneck form, as in the FedAlign paper for CIFAR (Mendieta et al. 2022)."""

from pydantic import Field
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import NormKind, norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.residual import bottleneck
from edgefl.models.slimmable import Conv2d, Init, Linear, draw_by_fan_out

EXPANSION = 4
STEM = 16
UNITS = 6


@MODELS.register("resnet56")
class ResNet56(ModelSpec):
    """3×3 stem of 16 channels, three stages of six bottlenecks (16, 32, 64 planes), and the classifier (M = 5).

    614,452 parameters and 87.24 M layer MACs for 100 classes at 32×32. FedAlign's block L is the third stage.
    """

    norm: NormKind = Field(default="batch", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, le=STEM, description="groups of group norm")
    init: Init = Field(
        default="uniform",
        description="initial values of convolutions: PyTorch's default of a layer, or N(0, 2 / fan-out), as in "
        "torchvision's ResNets",
    )

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, _, _ = image_shape("resnet56", sample_shape, least=8)
        norm = norm_of(self.norm, self.groups, least=STEM)
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
