"""Tensors that a method's parts may read but must not change: passed as copies, and checked for writes.

PyTorch has no read-only tensors. A loss or a layer can write to a view of the server's model, and some layers do so by
design: plain batch norm updates its statistics in place. So every shared tensor is passed as a copy, which costs a
fraction of a local step, and a write ends the method with a fault that names the tensor. PyTorch's version counters
find most writes at once; those through ``.data`` and NumPy are found by the numbers, once per call of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from edgefl.models.layout import Layout


class WrittenInPlace(Exception):  # noqa: N818  (what happened)
    """A part of a method wrote to a tensor that it may only read.

    Args:
        what: a description of the tensors.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was written to in place, and may only be read; use an operator that returns a new tensor, or "
            "clone it first"
        )


class Lent:
    """Copies of tensors, with a check that they were not changed.

    Vectors with the same start address, such as the received model and its parameters, share one copy.

    Args:
        originals: the tensors, by their names in messages.
        layout: the model's layout, so that messages name the tensors within a vector.
    """

    def __init__(self, originals: Mapping[str, Tensor], layout: Layout | None = None) -> None:
        self._originals = originals
        self._layout = layout
        self._copies = _copies(originals)
        self._versions = {name: copy._version for name, copy in self._copies.items()}

    def __getitem__(self, name: str) -> Tensor:
        """The copy of a tensor."""
        return self._copies[name]

    def check(self, *, numbers: bool = False) -> None:
        """Check that no copy was written to.

        Args:
            numbers: compare the numbers too, which also finds writes that version counters miss.

        Raises:
            WrittenInPlace: a tensor was written to.
        """
        written = [name for name, copy in self._copies.items() if copy._version != self._versions[name]]
        # Tensors that share memory share their version counter; comparing the values finds the one that was written.
        compared = self._copies if numbers else written
        changed = [name for name in compared if not same_bits(self._copies[name], self._originals[name])]
        if written or changed:
            raise WrittenInPlace(" and ".join(self._described(name) for name in changed or written[:1]))

    def given_back(self, answer: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What a part returned, after a check of the numbers, with the originals in place of their copies.

        Raises:
            WrittenInPlace: a tensor was written to.
        """
        self.check(numbers=True)
        originals = {id(copy): self._originals[name] for name, copy in self._copies.items()}
        return {name: originals.get(id(tensor), tensor) for name, tensor in answer.items()}

    def _described(self, name: str) -> str:
        layout, copy, original = self._layout, self._copies[name], self._originals[name]
        if layout is None or len(copy.shape) != 1 or len(copy) not in (layout.size, layout.parameter_count):
            return name
        entries = [*((entry, 0) for entry in layout.parameters)]
        if len(copy) == layout.size:
            entries += [(entry, layout.parameter_count) for entry in layout.buffers]
        within = [
            f"{layout.block_names[entry.block]}.{entry.name}"
            for entry, offset in entries
            for place in [slice(offset + entry.start, offset + entry.start + entry.numel)]
            if not same_bits(copy[place], original[place])
        ]
        return f"{name} ({', '.join(within[:3])}{', …' if len(within) > 3 else ''})" if within else name


@contextmanager
def lent_unwritten(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Check that the block does not write to these tensors, which are copies already.

    Raises:
        WrittenInPlace: a tensor was written to.

    >>> copy = torch.zeros(2)
    >>> with lent_unwritten({"frozen['received']": copy}):
    ...     copy[0] = 1
    Traceback (most recent call last):
    edgefl.training.lent.WrittenInPlace: frozen['received'] was written to in place, and may only be read; ...
    """
    versions = {name: tensor._version for name, tensor in tensors.items()}
    yield
    written = [name for name, tensor in tensors.items() if tensor._version != versions[name]]
    if written:
        raise WrittenInPlace(" and ".join(written))


def _copies(originals: Mapping[str, Tensor]) -> dict[str, Tensor]:
    longest: dict[object, Tensor] = {}
    for tensor in originals.values():
        known = longest.setdefault(_start(tensor), tensor)
        if len(tensor.shape) == 1 and len(tensor) > len(known):
            longest[_start(tensor)] = tensor
    copies = {start: tensor.detach().clone() for start, tensor in longest.items()}
    return {name: _beginning(copies[_start(tensor)], tensor) for name, tensor in originals.items()}


def _start(tensor: Tensor) -> object:
    """The start address of a vector; other tensors get a unique value."""
    return (tensor.data_ptr(), tensor.dtype) if len(tensor.shape) == 1 and tensor.is_contiguous() else id(tensor)


def _beginning(copy: Tensor, tensor: Tensor) -> Tensor:
    return copy[: len(tensor)] if len(tensor.shape) == 1 and len(copy) > len(tensor) else copy


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers by their bytes; comparing whole numbers is several times faster than comparing bytes."""


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of the same shape and type hold the same bits."""
    bits = _INTEGERS.get(one.element_size(), torch.uint8)
    return torch.equal(one.contiguous().view(-1).view(bits), other.contiguous().view(-1).view(bits))
