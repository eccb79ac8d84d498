"""Shared memory between this process and its worker processes, for tensors and for whole objects."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import weakref
from contextlib import suppress
from io import BytesIO
from math import prod
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor

_ALIGNED = 64
"""Alignment of tensors in bytes: one cache line of the processor."""

_SMALL = 1024
"""Tensors up to this number of bytes are pickled with the object that contains them."""


class Place(NamedTuple):
    """The place of a tensor in a buffer."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Token(NamedTuple):
    """Identifies a buffer for another process: its file's path, and the file's number, because a path may be reused."""

    path: str
    inode: int


class SharedBuffer:
    """A file in memory that several processes map; it has no locks, so the processes must coordinate their accesses.

    On Linux the file has no name, so no file remains, even if a process is killed; on other systems it is a temporary
    file. The system allocates its memory only when it is written to, and frees it when no process holds the buffer or a
    tensor in it.

    Args:
        size: bytes.

    Attributes:
        token: identifies the buffer for a worker process.

    Raises:
        OSError: the system has not enough memory.
    """

    def __init__(self, size: int) -> None:
        size = max(size, _ALIGNED)
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("edgefl")
            path = f"/proc/{os.getpid()}/fd/{file}"
            weakref.finalize(self, os.close, file)
        else:  # pragma: no cover  (macOS)
            file, path = tempfile.mkstemp(prefix="edgefl-")
            weakref.finalize(self, _removed, file, path)
        os.ftruncate(file, size)
        self.token = Token(path, os.fstat(file).st_ino)
        self._memory = mmap.mmap(file, size)

    @classmethod
    def found(cls, token: Token) -> SharedBuffer:
        """The buffer that another process created.

        Raises:
            OSError: it no longer exists, or belongs to another user.
        """
        with open(token.path, "r+b") as file:
            if os.fstat(file.fileno()).st_ino != token.inode:
                raise FileNotFoundError(f"{token.path} is now another file")
            buffer = cls.__new__(cls)
            buffer.token, buffer._memory = token, mmap.mmap(file.fileno(), 0)
            return buffer

    def __len__(self) -> int:
        return len(self._memory)

    def at(self, place: Place) -> Tensor:
        """The tensor at a place: a view of the buffer's memory, not a copy."""
        count = prod(place.shape)
        if not count:
            return torch.empty(place.shape, dtype=place.dtype)
        flat = torch.frombuffer(self._memory, dtype=place.dtype, count=count, offset=place.start)
        return flat.view(place.shape)

    def write(self, content: bytes) -> None:
        """Write bytes at the start of the buffer."""
        self._memory[: len(content)] = content

    def read(self, length: int) -> bytes:
        """The first ``length`` bytes of the buffer."""
        return self._memory[:length]


class Region:
    """A part of a buffer that is filled from its start, one tensor after another.

    Args:
        buffer: the buffer.
        start, size: offset and size in bytes.

    >>> region = Region(SharedBuffer(1000), 100, 500)
    >>> place = region.put(torch.tensor([[1.0, 2.0]]))
    >>> region.buffer.at(place)
    tensor([[1., 2.]])
    >>> region.buffer.at(region.put(torch.zeros(3, 0))).shape
    torch.Size([3, 0])
    >>> region.put(torch.zeros(1000)) is None
    True
    """

    def __init__(self, buffer: SharedBuffer, start: int, size: int) -> None:
        self.buffer = buffer
        self._start = _aligned(start)
        self._end = start + size
        self._next = self._start

    def clear(self) -> None:
        """Fill the region from its start again; its tensors may be overwritten."""
        self._next = self._start

    def put(self, tensor: Tensor) -> Place | None:
        """Copy a CPU tensor into the region; returns ``None`` if it does not fit."""
        start, size = self._next, tensor.numel() * tensor.element_size()
        if start + size > self._end:
            return None
        self._next = _aligned(start + size)
        place = Place(start, tensor.dtype, tuple(tensor.shape))
        self.buffer.at(place).copy_(tensor.detach())
        return place


class SharedObject:
    """A pickled object whose tensors are in a buffer, so that they are copied once for any number of processes.

    Args:
        value: any object that cloudpickle can pickle, even if its class is defined in ``__main__``.

    Attributes:
        token: the argument of :func:`load`.

    Raises:
        Exception: the object cannot be pickled; its parts may raise any exception.
        OSError: the system has not enough memory.

    >>> shared = SharedObject({"images": torch.arange(1000.0), "classes": 10})
    >>> load(shared.token)["images"].sum(), load(shared.token)["classes"]
    (tensor(499500.), 10)
    """

    def __init__(self, value: Any) -> None:
        stream = BytesIO()
        pickler = _Pickler(stream)
        pickler.dump(value)
        content = stream.getvalue()
        # The pickle contains each tensor's number; the tensors' places depend on the length of the pickle.
        sizes = [_aligned(each.numel() * each.element_size()) for each in pickler.tensors]
        start = _aligned(len(content)) + _aligned(_room_of_places(len(sizes)))
        self._buffer = SharedBuffer(start + sum(sizes))
        region = Region(self._buffer, start, sum(sizes))
        places = [region.put(tensor) for tensor in pickler.tensors]
        whole = pickle.dumps((places, content), protocol=pickle.HIGHEST_PROTOCOL)
        self._buffer.write(whole)
        self.token = ObjectToken(self._buffer.token, len(whole))


class ObjectToken(NamedTuple):
    """Identifies an object for another process: its buffer, and the length of the pickle in it."""

    buffer: Token
    length: int


def load(token: ObjectToken) -> Any:
    """The object that another process shared; its tensors are views of the shared memory and must not be written to."""
    buffer = SharedBuffer.found(token.buffer)
    places, content = pickle.loads(buffer.read(token.length))
    return _Unpickler(BytesIO(content), buffer, places).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Collects large tensors, in order, instead of pickling them."""

    def __init__(self, stream: BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        # Other layouts would lose their strides, which decide the order in which kernels add.
        plain = (
            type(value) is Tensor and value.device.type == "cpu" and value.is_contiguous() and not value.requires_grad
        )
        if not plain or value.numel() * value.element_size() <= _SMALL:
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self._numbers[id(value)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: BytesIO, buffer: SharedBuffer, places: list[Place]) -> None:
        super().__init__(stream)
        self._buffer = buffer
        self._places = places

    def persistent_load(self, number: int) -> Tensor:
        return self._buffer.at(self._places[number])


def _aligned(number: int) -> int:
    return -(-number // _ALIGNED) * _ALIGNED


def _room_of_places(count: int) -> int:
    """An upper bound on the bytes of so many pickled places, with their dtypes and at most a dozen dimensions."""
    return 512 * (count + 1)


def _removed(file: int, path: str) -> None:  # pragma: no cover  (macOS)
    os.close(file)
    with suppress(OSError):
        os.unlink(path)
