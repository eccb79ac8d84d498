"""The dimensions of tensors as sequences of channels, and which channels of different tensors are the same.

A group is a set of channels that can only be kept or removed together in all tensors: the outputs of a convolution, the
scales of the norm after it, the inputs of the next convolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Piece(NamedTuple):
    """Consecutive numbers of a dimension: ``repeat`` for each of the ``channels``, one channel after the other.

    ``group`` is the group of the channels; ``None``: they are always kept.
    """

    group: int | None
    channels: int
    repeat: int = 1

    @property
    def size(self) -> int:
        """Length of the piece."""
        return self.channels * self.repeat


Axis = tuple[Piece, ...]
"""A dimension, as its consecutive pieces."""


def fixed(size: int) -> Axis:
    """A dimension that is always whole.

    >>> fixed(3)
    (Piece(group=None, channels=3, repeat=1),)
    """
    return (Piece(None, size),)


class Groups:
    """The groups of channels of a model, joined step by step.

    >>> groups = Groups()
    >>> outputs, inputs = groups.new(4), groups.new(12)
    >>> flattened = tuple(piece._replace(repeat=3) for piece in outputs)  # of 1×3 images
    >>> groups.join(inputs, flattened)
    >>> groups.of(inputs)
    (Piece(group=0, channels=4, repeat=3),)
    """

    def __init__(self) -> None:
        self._bound: dict[int, Axis] = {}
        self._sizes: list[int] = []

    def new(self, size: int) -> Axis:
        """A dimension with channels of its own; one of a single number is always kept."""
        if size == 1:
            return fixed(1)
        self._sizes.append(size)
        return (Piece(len(self._sizes) - 1, size),)

    def of(self, axis: Axis) -> Axis:
        """The axis in terms of the groups known now."""
        pieces: list[Piece] = []
        for piece in axis:
            if piece.group in self._bound and piece.group is not None:
                inner = self.of(self._bound[piece.group])
                found = tuple(each._replace(repeat=each.repeat * piece.repeat) for each in inner)
            else:
                found = (piece,)
            for each in found:
                if each.group is not None:
                    pieces.append(each)
                else:
                    before = pieces.pop().channels if pieces and pieces[-1].group is None else 0
                    pieces.append(Piece(None, before + each.size))
        return tuple(pieces)

    def join(self, one: Axis, other: Axis) -> None:
        """The two dimensions have the same channels; where they cannot, the channels of both are always kept."""
        one, other = self.of(one), self.of(other)
        if one == other:
            return
        if _is_whole(one) and one[0].group not in {piece.group for piece in other}:
            self._bind(one[0].group, other)
        elif _is_whole(other) and other[0].group not in {piece.group for piece in one}:
            self._bind(other[0].group, one)
        elif [(piece.channels, piece.repeat) for piece in one] == [(piece.channels, piece.repeat) for piece in other]:
            for mine, others in zip(one, other, strict=True):
                self.join((mine._replace(repeat=1),), (others._replace(repeat=1),))
        else:
            self.keep(one)
            self.keep(other)

    def keep(self, axis: Axis) -> None:
        """The channels of a dimension are always kept."""
        for piece in self.of(axis):
            if piece.group is not None:
                self._bind(piece.group, fixed(piece.channels))

    def _bind(self, group: int | None, axis: Axis) -> None:
        assert group is not None
        self._bound[group] = axis


def _is_whole(axis: Axis) -> bool:
    return len(axis) == 1 and axis[0].group is not None and axis[0].repeat == 1


def sizes_of(axes: Sequence[Axis]) -> dict[int, int]:
    """The number of channels of each group in some dimensions."""
    return {piece.group: piece.channels for axis in axes for piece in axis if piece.group is not None}


def kept_numbers(axis: Axis, kept: Mapping[int, Tensor]) -> Tensor:
    """The numbers of a dimension that belong to the kept channels, int64.

    Args:
        axis: the dimension.
        kept: the kept channels of each group, in their order.

    >>> kept_numbers((Piece(0, 4, 2), Piece(None, 1)), {0: torch.tensor([0, 3])})
    tensor([0, 1, 6, 7, 8])
    """
    numbers, start = [], 0
    for piece in axis:
        chosen = torch.arange(piece.channels) if piece.group is None else kept[piece.group]
        numbers.append(start + (chosen[:, None] * piece.repeat + torch.arange(piece.repeat)).flatten())
        start += piece.size
    return torch.cat(numbers)
