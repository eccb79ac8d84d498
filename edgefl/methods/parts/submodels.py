"""The interface of methods whose clients train parts of the model, as large as their devices allow."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from edgefl.methods.fits import Need
from edgefl.models.block_model import BlockModel
from edgefl.models.narrower import Cut, Rounding
from edgefl.options import Component
from edgefl.units import ShortSeconds

Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, eq=False)
class SubModel:
    """The part of a model that clients of one capacity level train."""

    model: BlockModel  # the part's skeleton, a smaller network with tensors of its own
    # for a round (from 0), the place in the whole model's vector of each number of the part's vector, int64
    # [model.layout.size], each at most once
    places: Callable[[int], Tensor]


class SubModels(Component):
    """The capacity levels of a method and the part of the model that belongs to each; its fields are options.

    A client's level depends on its device and its number of samples. It is the first level whose share of the model is
    at most the ``capacity`` of the device's entry in ``fleet``, which fits in the device's memory, and with which the
    local training of a round takes at most ``deadline`` on the undisturbed device. If there is none, it is the last
    level; the device may still refuse that for its memory.
    :class:`~edgefl.simulation.work.WorkModel` chooses it.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"each update", "plain traffic", "shared model"})
    levels: tuple[Share, ...] = Field((1.0, 0.5, 0.25), min_length=1, description="shares of the model, largest first")
    deadline: ShortSeconds | None = Field(None, description="the most seconds of a client's training; null: any")

    @field_validator("levels")
    @classmethod
    def _descending(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if any(one <= other for one, other in pairwise(levels)):
            raise ValueError(f"expected different shares, largest first, found {', '.join(f'{e:g}' for e in levels)}")
        return levels

    def shares(self, blocks: int) -> tuple[float, ...]:
        """The share of the model of each level, largest first, for a model of so many blocks."""
        return self.levels

    @abstractmethod
    def part(self, whole: BlockModel, level: int) -> SubModel:
        """The part of a model that clients of a level train; ``level`` is an index in ``levels``."""


class Width(SubModels):
    """Level p trains the first ⌈p C⌉ of the C channels of each hidden layer.

    Input channels of the first layers and outputs of the last one are whole. Layers whose outputs are added have the
    same channels. A norm over groups of channels keeps the size of its groups where that divides the channels.
    """

    rounding: ClassVar[Rounding] = "up"

    def part(self, whole: BlockModel, level: int) -> SubModel:
        share = self.levels[level]
        if share == 1:
            places = torch.arange(whole.layout.size)
            return SubModel(whole, lambda _: places)
        cut = self.cut(whole, share)
        return SubModel(cut.model, lambda round: cut.places(self.shift(round)))

    def cut(self, whole: BlockModel, share: float) -> Cut:
        return Cut(whole, share, self.rounding)

    def shift(self, round: int) -> int:
        """The first channel of the window in a round (from 0)."""
        return 0


class RollingWidth(Width):
    """Level p trains ⌊p C⌋ of the C channels of each hidden layer: a window that moves by one channel each round.

    Its first channel is j mod C in round j (from 0); after the last follows the first (Alam et al. 2022, Sec. 3.2).
    """

    rounding = "down"

    def shift(self, round: int) -> int:
        return round
