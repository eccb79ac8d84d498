"""Internal classifiers: a model that also predicts after each of its blocks, and the parts that end there.

A model of blocks b_1 … b_D and a last block becomes b_1, exit 1, b_2, exit 2, …, b_D, last block. The names and tensors
of its own blocks do not change. Its first 2d blocks are a network that predicts with d classifiers.
"""

import copy
import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import mode
from edgefl.models.slimmable import Linear

_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Exit(nn.Module):
    """An internal classifier: the mean of each channel in each cell of a grid, and a linear layer.

    As a block it returns its input, and appends its outputs to the mode's ``exits``; the last one returns its outputs.

    Args:
        shape: of the tap that it reads: a vector ``[size]``, or maps ``[channels, ...]``.
        place: its number, from 1; its initial values are drawn by it.
        grid: cells of a map along each dimension, at most; 1: the mean of the whole map.
    """

    def __init__(self, shape: Sequence[int], classes: int, place: int, grid: int) -> None:
        super().__init__()
        self._windows = tuple(math.ceil(side / grid) for side in shape[1:])
        cells = [math.ceil(side / window) for side, window in zip(shape[1:], self._windows, strict=True)]
        self.layer = ExitLayer(shape[0] * math.prod(cells), classes, place)
        self.is_last = False

    def forward(self, tap: Tensor) -> Tensor:
        """The tap of the block before, unchanged, or the outputs ``[batch, classes]`` of the last exit."""
        if not self.is_last and mode().exits is None:
            return tap
        if self._windows:
            means = _MEANS[len(self._windows)](tap, self._windows, ceil_mode=True).flatten(1)
        outputs: Tensor = self.layer(means if self._windows else tap)
        if self.is_last:
            return outputs
        exits = mode().exits
        assert exits is not None
        exits.append(outputs)
        return tap


class ExitLayer(Linear):
    """A linear layer whose first values do not change those of the model's own blocks."""

    def __init__(self, features: int, classes: int, place: int) -> None:
        super().__init__(features, classes, slim_outputs=False)
        self._place = place

    def initialise(self, tensors: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """Draw PyTorch's defaults from a generator of its own, seeded by that of the model and by its place."""
        own = torch.Generator().manual_seed((generator.initial_seed() + self._place) % 2**63)
        bound = 1 / math.sqrt(self.in_features)
        for name in ("weight", "bias"):
            tensors[name].uniform_(-bound, bound, generator=own)


def has_exits(model: BlockModel) -> bool:
    """True if a model has internal classifiers, or is a part of one that has."""
    return any(isinstance(block, Exit) for block in model.blocks.values())


def with_exits(model: BlockModel, grid: int = 1) -> BlockModel:
    """The model with a classifier, of ``grid`` cells along a map's sides, after all blocks but the last two."""
    blocks: dict[str, nn.Module] = {}
    names, copied = list(model.blocks), copy.deepcopy(dict(model.blocks.items()))  # at once, since they share tensors
    new = [f"exit{place}" for place in range(1, len(names) - 1)]
    for place, name in enumerate(names):
        blocks[name] = copied[name]
        if place < len(new):
            shape = model.tap_shapes[place]
            if len(shape) != 1 and len(shape) != len(model.sample_shape):
                raise UserError(
                    "a classifier after a block reads a vector, or maps [channels, ...] like those of the input, and "
                    f"the output of the model's block '{name}' has the shape {list(shape)}"
                )
            blocks[new[place]] = Exit(shape, model.classes, place + 1, grid)
    return model.with_blocks(blocks, new)


def first_exits(model: BlockModel, count: int) -> BlockModel:
    """The part of a model with exits that ends with classifier ``count``, from 1, as a skeleton of its own."""
    held = dict(model.blocks.items())
    blocks = copy.deepcopy({name: held[name] for name in list(held)[: 2 * count]})
    last = blocks[list(blocks)[-1]]
    if isinstance(last, Exit):
        last.is_last = True
    part = model.with_blocks(blocks, ())
    part.fresh, part.pretrained = None, None
    return part
