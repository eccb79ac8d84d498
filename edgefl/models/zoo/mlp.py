"""A perceptron with hidden layers, for tables, sensor windows and other vectors."""

from math import prod
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.registry import MODELS, ModelSpec
from edgefl.models.slimmable import Linear


@MODELS.register("mlp")
class Mlp(ModelSpec):
    """A linear layer and ReLU for each hidden width, and a linear classifier; each layer is a block.

    Inputs of any shape are flattened; integers are used as numbers.
    """

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
