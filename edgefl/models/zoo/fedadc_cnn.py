"""The plain convolutional network of the FedADC paper (Ozfatura et al. 2021)."""

from itertools import pairwise

from torch import nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.registry import MODELS, ModelSpec, image_shape
from edgefl.models.slimmable import Conv2d, Linear

HIDDEN = (128, 256, 512, 1024)


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
        for number, (inputs, outputs) in enumerate(pairwise((flat, *HIDDEN)), start=1):
            blocks[f"fc{number}"] = nn.Sequential(nn.Flatten(), Linear(inputs, outputs), nn.ReLU())
        blocks["fc5"] = Classifier(Linear(HIDDEN[-1], classes, slim_outputs=False), pool=False)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=3)
