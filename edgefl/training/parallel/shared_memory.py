"""Memory that this process shares with its worker processes: files in memory, which PyTorch maps."""

import os
import tempfile
import weakref
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNED = 64

_numbers = count()


class Token(NamedTuple):
    """Identifies a shared file for another process: its path, and a name, because a path may be used again."""

    path: str
    name: str


class SharedFile:
    """A file in memory. On Linux it has no name, so that nothing remains even if a process is killed.

    Its memory is free when no process holds the file or a tensor in it.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("edgefl")
            path = f"/proc/{os.getpid()}/fd/{file}"
            weakref.finalize(self, os.close, file)
        else:  # pragma: no cover  (macOS)
            file, path = tempfile.mkstemp(prefix="edgefl-")
            os.close(file)
            weakref.finalize(self, Path(path).unlink)
        self.token = Token(path, f"{os.getpid()} {next(_numbers)}")


class SharedObject(SharedFile):
    """An object in a shared file, so that its tensors are copied once for any number of processes.

    >>> shared = SharedObject({"images": torch.arange(1000.0), "classes": 10})
    >>> load(shared.token)["images"].sum(), load(shared.token)["classes"]
    (tensor(499500.), 10)
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        torch.save(value, self.token.path, pickle_module=cloudpickle, pickle_protocol=5)


def load(token: Token) -> Any:
    """The object that another process shared. A write into its tensors changes only this process's copy."""
    return torch.load(token.path, mmap=True, weights_only=False)


class Buffer(SharedFile):
    """Shared memory of ``size`` bytes for tensors, without locks: the processes must coordinate their accesses."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.memory = mapped(self.token, size)


def mapped(token: Token, size: int) -> Tensor:
    """The bytes of a :class:`Buffer`, which all processes read and write."""
    return torch.from_file(token.path, shared=True, size=size, dtype=torch.uint8)


class Place(NamedTuple):
    """A tensor's place in a buffer."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def of(self, memory: Tensor) -> Tensor:
        """A view of the buffer's memory, not a copy."""
        size = prod(self.shape) * self.dtype.itemsize
        return memory[self.start : self.start + size].view(self.dtype).view(self.shape)


Sent = Place | NDArray[Any]
"""A tensor's place in the buffer or, if the buffer is full, its numbers."""


class Region:
    """A part of a buffer that is filled from its start, one tensor after another.

    ``start`` and ``size`` are in bytes; ``start`` is a multiple of 64.

    >>> region = Region(torch.zeros(1000, dtype=torch.uint8), 128, 500)
    >>> received(region.put(torch.tensor([[1.0, 2.0]])), region.memory)
    tensor([[1., 2.]])
    """

    def __init__(self, memory: Tensor, start: int, size: int) -> None:
        self.memory = memory
        self._next, self._end = start, start + size

    def put(self, tensor: Tensor) -> Sent:
        """Copy a CPU tensor into the region, or return its numbers if it does not fit."""
        start, size = self._next, tensor.numel() * tensor.element_size()
        if start + size > self._end:
            return np.array(tensor.detach().numpy())
        self._next = -(-(start + size) // _ALIGNED) * _ALIGNED
        place = Place(start, tensor.dtype, tuple(tensor.shape))
        place.of(self.memory).copy_(tensor.detach())
        return place


def received(sent: Sent, memory: Tensor) -> Tensor:
    """A tensor that the other process sent; if it is in the buffer, a view of the buffer's memory."""
    return sent.of(memory) if isinstance(sent, Place) else torch.from_numpy(sent)
