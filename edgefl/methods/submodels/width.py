"""Parts of a model with some of the channels of each hidden layer, as networks of their own."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from edgefl.methods.submodels.base import SubModel, SubModels
from edgefl.models.block_model import BlockModel
from edgefl.models.width.cutting import Cut, Rounding


def identity(size: int) -> Tensor:
    """The places of a part that is the whole model of ``size`` numbers."""
    return torch.arange(size)


class Width(SubModels):
    """Level p trains the first ⌈p C⌉ of the C channels of each hidden layer.

    Input channels of the first layers and outputs of the last one are whole. Layers whose outputs are added have the
    same channels. A norm over groups of channels keeps the size of its groups where that divides the channels.
    """

    rounding: ClassVar[Rounding] = "up"
    """How ``p C`` is rounded."""

    def part(self, whole: BlockModel, level: int) -> SubModel:
        """See :class:`SubModels`."""
        share = self.levels[level]
        if share == 1:
            places = identity(whole.layout.size)
            return SubModel(whole, lambda _: places)
        cut = self.cut(whole, share)
        return SubModel(cut.model, lambda round: cut.places(self.shift(round)))

    def cut(self, whole: BlockModel, share: float) -> Cut:
        """The network of a share of the channels."""
        return Cut(whole, share, self.rounding)

    def shift(self, round: int) -> int:
        """The first channel of the window in a round (from 0)."""
        return 0


class RollingWidth(Width):
    """Level p trains ⌊p C⌋ of the C channels of each hidden layer: a window that moves by one channel each round.

    Its first channel is j mod C in round j (from 0), and after the last channel follows the first (Alam et al. 2022,
    Sec. 3.2).
    """

    rounding: ClassVar[Rounding] = "down"

    def shift(self, round: int) -> int:
        """See :class:`Width`."""
        return round
