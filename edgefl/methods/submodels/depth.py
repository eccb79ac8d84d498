"""Parts of a model that are its first blocks, each with a classifier after it."""

from __future__ import annotations

import torch

from edgefl.errors import UserError
from edgefl.methods.submodels.base import SubModel, SubModels
from edgefl.methods.submodels.width import identity
from edgefl.models.block_model import BlockModel
from edgefl.models.exits import first_exits


def kept_blocks(count: int, share: float) -> int:
    """The number of ``count`` blocks in a part of that share: ⌊share · count⌋, at least one.

    >>> kept_blocks(4, 0.75), kept_blocks(3, 0.5), kept_blocks(3, 0.25), kept_blocks(10, 0.7)
    (3, 1, 1, 7)
    """
    return max(1, int(round(share * count, 9)))  # 0.7 · 10 may be a little less than 7


class Depth(SubModels):
    """Level p trains the first ⌊p D⌋ of the D blocks before the classifier, and the classifiers after each of them.

    The model is one of :func:`~edgefl.models.exits.with_exits`: D blocks and D classifiers in turn.
    """

    def part(self, whole: BlockModel, level: int) -> SubModel:
        """See :class:`SubModels`."""
        layout, blocks = whole.layout, whole.depth // 2
        if layout.local:
            raise UserError("a model of which clients keep a part for themselves cannot be trained at a smaller depth")
        kept = kept_blocks(blocks, self.levels[level])
        if kept == blocks:
            places = identity(layout.size)
            return SubModel(whole, lambda _: places)
        part = first_exits(whole, kept)
        # A vector has the parameters block by block and then the buffers block by block.
        places = torch.cat(
            [
                torch.arange(part.layout.parameter_count),
                layout.parameter_count + torch.arange(part.layout.buffer_count),
            ]
        )
        return SubModel(part, lambda _: places)
