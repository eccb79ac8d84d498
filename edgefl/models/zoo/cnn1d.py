"""A small convolutional network for windows of sensors and other sequences of numbers, in four blocks."""

from pydantic import Field
from torch import nn

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.registry import MODELS, ModelSpec
from edgefl.models.slimmable import Linear


@MODELS.register("cnn1d")
class Cnn1d(ModelSpec):
    """conv w, conv 2w, fc 4w, fc over ``[channels, length]``; ReLU after each but the last (M = 4).

    Each convolution is followed by max-pooling over four places.
    """

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
