"""Plain networks: convolutions with pooling, if any, then linear layers."""

from itertools import pairwise
from math import prod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import norm_of
from edgefl.models.registry import MODELS, ModelSpec, NormedSpec, image_shape
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


@MODELS.register("cnn1d")
class Cnn1d(ModelSpec):
    """conv w, conv 2w with pooling over four places, fc 4w, fc over ``[channels, length]``, and ReLU (M = 4)."""

    width: int = Field(default=16, ge=1, le=4096, description="channels of the first convolution")
    kernel: int = Field(default=9, ge=1, le=255, description="length of the convolutions' kernels")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        if len(sample_shape) != 2 or sample_shape[1] < 16:
            shape = "×".join(map(str, sample_shape))
            raise UserError(f"model 'cnn1d' takes [channels, length] with a length of at least 16, found {shape}")
        channels, length = sample_shape

        def convolution(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv1d(inputs, outputs, self.kernel, padding="same"), nn.MaxPool1d(4), nn.ReLU())

        blocks = {
            "conv1": convolution(channels, self.width),
            "conv2": convolution(self.width, 2 * self.width),
            "fc1": nn.Sequential(nn.Flatten(), Linear(2 * self.width * (length // 16), 4 * self.width), nn.ReLU()),
            "fc2": Classifier(Linear(4 * self.width, classes, slim_outputs=False), pool=False),
        }
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=1)


@MODELS.register("mlp")
class Mlp(ModelSpec):
    """A linear layer and ReLU for each hidden width, and a linear classifier, on flattened inputs of any shape."""

    widths: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = Field(
        default=(64, 64), min_length=1, max_length=64, description="widths of the hidden layers"
    )

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        blocks: dict[str, nn.Module] = {}
        before = prod(sample_shape)
        for number, width in enumerate(self.widths, 1):
            layers: list[nn.Module] = [Flat()] if number == 1 else []
            blocks[f"fc{number}"] = nn.Sequential(*layers, Linear(before, width), nn.ReLU())
            before = width
        blocks[f"fc{len(self.widths) + 1}"] = Classifier(Linear(before, classes, slim_outputs=False), pool=False)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=1)


class Flat(nn.Module):
    """Inputs as vectors of float32."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1).to(torch.float32)


_FEDADC_HIDDEN = (128, 256, 512, 1024)


@MODELS.register("fedadc_cnn")
class FedAdcCnn(ModelSpec):
    """Four 3×3 convolutions (64 … 512), each with ReLU and 2×2 max-pooling, then five linear layers (M = 9).

    2,513,418 parameters for 10 classes at 32×32. FedAlign's block L is the fourth convolution.
    """

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        channels, height, width = image_shape("fedadc_cnn", sample_shape, least=16)
        blocks: dict[str, nn.Module] = {}
        for number, (inputs, outputs) in enumerate(pairwise((channels, 64, 128, 256, 512)), start=1):
            convolution = Conv2d(inputs, outputs, 3, bias=True)
            # ReLU and maximum commute; in this order ReLU processes a quarter of the numbers.
            blocks[f"conv{number}"] = nn.Sequential(convolution, nn.MaxPool2d(2), nn.ReLU())
        flat = 512 * (height // 16) * (width // 16)
        for number, (inputs, outputs) in enumerate(pairwise((flat, *_FEDADC_HIDDEN)), start=1):
            blocks[f"fc{number}"] = nn.Sequential(nn.Flatten(), Linear(inputs, outputs), nn.ReLU())
        blocks["fc5"] = Classifier(Linear(_FEDADC_HIDDEN[-1], classes, slim_outputs=False), pool=False)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=3)


_VGG_WIDTHS = (32, 64, 128, 128, 256, 256)
_VGG_HIDDEN = 512


@MODELS.register("vgg9")
class Vgg9(NormedSpec):
    """Six 3×3 convolutions, pooled after every second one, then two hidden linear layers and the classifier (M = 7).

    Convolutions have biases and start from N(0, 2/(9 · outputs)). FedAlign's block L is the sixth convolution.
    """

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        arriving, height, width = image_shape("vgg9", sample_shape, least=8)
        norm = self.norms(_VGG_WIDTHS[0])
        blocks: dict[str, nn.Module] = {}
        for number, outputs in enumerate(_VGG_WIDTHS, start=1):
            layers = [Conv2d(arriving, outputs, 3, bias=True, fan_out=True), norm(outputs), nn.ReLU()]
            blocks[f"conv{number}"] = nn.Sequential(*layers, *([] if number % 2 else [nn.MaxPool2d(2)]))
            arriving = outputs
        flat = arriving * (height // 8) * (width // 8)
        hidden = (Linear(flat, _VGG_HIDDEN), nn.ReLU(), Linear(_VGG_HIDDEN, _VGG_HIDDEN), nn.ReLU())
        output = Linear(_VGG_HIDDEN, classes, slim_outputs=False)
        blocks["classifier"] = Classifier(nn.Sequential(*hidden, output), pool=False)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=5)
