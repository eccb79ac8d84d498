"""A small causal transformer over characters, which predicts the next character."""

from collections.abc import Mapping
from math import sqrt

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.norm import LayerNorm
from edgefl.models.registry import MODELS, ModelSpec
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Linear
from edgefl.tasks.base import Task
from edgefl.tasks.classification import Classification
from edgefl.tasks.language_model import LanguageModel


@MODELS.register("char_transformer")
class CharTransformer(ModelSpec):
    """Embedding, ``layers`` layers of causal attention and a perceptron, and a classifier: M = ``layers`` + 2 blocks.

    It classifies the last position, or, for language modelling, each one; pre-norm (Radford et al. 2019).
    """

    width: int = Field(default=64, ge=1, description="numbers at each position")
    heads: int = Field(default=4, ge=1, description="attention heads; divides the width")
    layers: int = Field(default=2, ge=1, description="transformer layers")

    def build(self, sample_shape: tuple[int, ...], classes: int) -> BlockModel:
        return self.build_for(sample_shape, classes, task=Classification(), tokens=True)

    def build_for(self, sample_shape: tuple[int, ...], outputs: int, *, task: Task, tokens: bool | None) -> BlockModel:
        """Inputs are sequences of characters; the number of characters is the number of outputs."""
        classes = outputs
        if len(sample_shape) != 1:
            shape = "×".join(map(str, sample_shape))
            raise UserError(f"model 'char_transformer' takes sequences of characters, found images of {shape}")
        if self.width % self.heads:
            raise UserError(f"{self.heads} heads do not divide a width of {self.width}", field="heads")
        blocks: dict[str, nn.Module] = {"embedding": Embedding(classes, sample_shape[0], self.width)}
        for number in range(1, self.layers + 1):
            attention = nn.Sequential(LayerNorm(self.width), CausalAttention(self.width, self.heads))
            perceptron = nn.Sequential(
                LayerNorm(self.width), Linear(self.width, 4 * self.width), nn.GELU(), Linear(4 * self.width, self.width)
            )
            blocks[f"layer{number}"] = nn.Sequential(
                Residual(attention, activation=nn.Identity()), Residual(perceptron, activation=nn.Identity())
            )
        last = nn.Sequential(LayerNorm(self.width), Linear(self.width, classes, slim_outputs=False))
        blocks["classifier"] = last if isinstance(task, LanguageModel) else LastPosition(last, pool=False)
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=self.layers, tokens=classes)


class Embedding(nn.Module):
    """A vector for each character plus one for each position."""

    def __init__(self, characters: int, length: int, width: int) -> None:
        super().__init__()
        self.character = nn.Parameter(torch.zeros(characters, width))
        self.position = nn.Parameter(torch.zeros(length, width))

    def initialise(self, tensors: Mapping[str, Tensor], generator: torch.Generator) -> None:
        for tensor in tensors.values():
            tensor.normal_(std=0.1, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map character indices ``[batch, length]`` to ``[batch, length, width]``."""
        return F.embedding(inputs.long(), self.character) + self.position


class CausalAttention(nn.Module):
    """Multi-head attention of each position to itself and earlier positions (Vaswani et al. 2017).

    Implemented as two products and a softmax, so that every operator has derivatives of any order and is counted. At a
    smaller width its first heads run, on the leading numbers that arrive.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = Linear(width, 3 * width)
        self.out = Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        batch, length, width = inputs.shape
        heads, project = self.heads, self.project
        if width == project.in_features:
            projected = project(inputs)
        else:
            heads, rest = divmod(width * heads, project.in_features)
            if rest:
                raise UserError(f"{width} of {project.in_features} numbers are no whole number of {self.heads} heads")
            weight = project.weight.reshape(3, -1, project.in_features)[:, :width, :width]
            projected = F.linear(inputs, weight.flatten(0, 1), project.bias.reshape(3, -1)[:, :width].flatten())
        split = projected.reshape(batch, length, 3, heads, width // heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / sqrt(width // heads)
        later = torch.ones(length, length, dtype=torch.bool, device=inputs.device).triu(1)
        shares = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        attended = (shares @ value).transpose(1, 2).reshape(batch, length, width)
        mixed: Tensor = self.out(attended)
        return mixed


class LastPosition(Classifier):
    """Reads only the last position, which attends to all others."""

    def embed(self, tap: Tensor) -> Tensor:
        """Features ``[batch, width]`` of the tap ``[batch, length, width]``."""
        return tap[:, -1]
