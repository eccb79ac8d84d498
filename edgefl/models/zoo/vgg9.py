"""VGG-9 with group norm, in seven blocks, from FedMLB's additional experiments (Kim et al. 2022, Table 9)."""

from pydantic import Field
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import NormKind, norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.slimmable import Conv2d, Linear

WIDTHS = (32, 64, 128, 128, 256, 256)
HIDDEN = 512


@MODELS.register("vgg9")
class Vgg9(ModelSpec):
    """Six 3×3 convolutions, pooled after every second one, then two hidden linear layers and the classifier (M = 7).

    Convolutions have biases and start from N(0, 2/(9 · outputs)). FedAlign's block L is the sixth convolution.
    """

    norm: NormKind = Field(default="group", description="group norm or batch norm")
    groups: int = Field(default=2, ge=1, le=WIDTHS[0], description="groups of group norm")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        arriving, height, width = image_shape("vgg9", sample_shape, least=8)
        norm = norm_of(self.norm, self.groups, least=WIDTHS[0])
        blocks: dict[str, nn.Module] = {}
        for number, outputs in enumerate(WIDTHS, start=1):
            layers = [Conv2d(arriving, outputs, 3, bias=True, fan_out=True), norm(outputs), nn.ReLU()]
            blocks[f"conv{number}"] = nn.Sequential(*layers, *([] if number % 2 else [nn.MaxPool2d(2)]))
            arriving = outputs
        flat = arriving * (height // 8) * (width // 8)
        hidden = (Linear(flat, HIDDEN), nn.ReLU(), Linear(HIDDEN, HIDDEN), nn.ReLU())
        output = Linear(HIDDEN, classes, slim_outputs=False)
        blocks["classifier"] = Classifier(nn.Sequential(*hidden, output), pool=False)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=5)
