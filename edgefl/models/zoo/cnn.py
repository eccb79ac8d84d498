"""The small convolutional network of the first federated-learning experiments, in four blocks."""

from typing import Literal

from pydantic import Field
from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import norm_of
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.slimmable import Conv2d, Linear


@MODELS.register("cnn")
class SmallCnn(ModelSpec):
    """conv w, conv 2w, fc 4w, fc; ReLU after each but the last, 2×2 max-pooling after each convolution (M = 4).

    McMahan et al. 2017 use width 32, kernel 5 and a hidden layer of 512. FedAlign's block L is the second convolution.
    """

    width: int = Field(default=16, ge=1, le=4096, description="channels of the first convolution")
    kernel: Literal[3, 5] = Field(default=3, description="side of the convolutions' kernels")
    norm: Literal["none", "group", "batch"] = Field(
        default="none", description="normalisation after each convolution; FedAlign's term is bounded only with one"
    )
    groups: int = Field(default=2, ge=1, description="groups of group normalisation; divides the width")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, height, width = image_shape("cnn", sample_shape, least=8)
        flat = 2 * self.width * (height // 4) * (width // 4)
        norm = None if self.norm == "none" else norm_of(self.norm, self.groups, least=self.width)

        def convolution(inputs: int, outputs: int) -> nn.Sequential:
            layers: list[nn.Module] = [Conv2d(inputs, outputs, self.kernel, bias=norm is None)]
            if norm is not None:
                layers.append(norm(outputs))
            # ReLU and maximum commute; in this order ReLU processes a quarter of the numbers.
            return nn.Sequential(*layers, nn.MaxPool2d(2), nn.ReLU())

        blocks = {
            "conv1": convolution(channels, self.width),
            "conv2": convolution(self.width, 2 * self.width),
            "fc1": nn.Sequential(nn.Flatten(), Linear(flat, 4 * self.width), nn.ReLU()),
            "fc2": Classifier(Linear(4 * self.width, classes, slim_outputs=False), pool=False),
        }
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=1)
