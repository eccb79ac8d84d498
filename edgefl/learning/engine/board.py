"""Memory that a process shares with the copies made of it afterwards, where tensors are left for one another."""

from __future__ import annotations

import mmap
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

_ALIGNED = 64
"""Tensors begin at multiples of as many bytes: a line of the processor's cache."""


class Place(NamedTuple):
    """Where a tensor lies on a board."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Board:
    """A piece of memory for tensors on their way, without a name: nothing is left behind when its processes are gone.

    One side writes, the other reads, and both know when: a board guards nothing. Memory is taken from the machine only
    as it is written to.

    Args:
        size: bytes.

    Raises:
        OSError: the machine has no room for it.

    >>> board = Board(1000)
    >>> place = board.put(torch.tensor([[1.0, 2.0]]))
    >>> board.at(place)
    tensor([[1., 2.]])
    >>> board.at(board.put(torch.zeros(3, 0))).shape
    torch.Size([3, 0])
    >>> board.put(torch.zeros(1000)) is None
    True
    """

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, max(size, _ALIGNED))
        self._used = 0

    def clear(self) -> None:
        """Whoever writes begins anew; what lies there may be overwritten."""
        self._used = 0

    def put(self, tensor: Tensor) -> Place | None:
        """Leave a copy of a tensor of the CPU; ``None`` where there is no room left for it."""
        start, size = self._used, tensor.numel() * tensor.element_size()
        if start + size > len(self._memory):
            return None
        self._used = -(-(start + size) // _ALIGNED) * _ALIGNED
        place = Place(start, tensor.dtype, tuple(tensor.shape))
        self.at(place).copy_(tensor.detach())
        return place

    def at(self, place: Place) -> Tensor:
        """What lies at a place: the board's own memory, not a copy."""
        count = prod(place.shape)
        if not count:
            return torch.empty(place.shape, dtype=place.dtype)
        flat = torch.frombuffer(self._memory, dtype=place.dtype, count=count, offset=place.start)
        return flat.view(place.shape)
