"""The form in which jobs and results are sent between processes: plain values, and tensors as arrays of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.training.base import JobResult, JobTask


class Packed(NamedTuple):
    """A tensor's bytes, with its dtype and shape."""

    bytes: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]


class PackedResult(NamedTuple):
    """A job's result for sending: its tensors by name, and its batch sizes."""

    tensors: dict[str, Packed]
    batch_sizes: tuple[int, ...]


_NOTHING = cast("Tensor", None)
"""Placeholder for a removed tensor; even an empty tensor takes a quarter of a millisecond to pickle."""


@dataclass(frozen=True)
class Parcel:
    """A job for sending: the task without its tensors, and the tensors or their references in the object store."""

    task: JobTask
    tensors: Mapping[str, Any]


def packed(tensor: Tensor) -> Packed:
    """A tensor as bytes.

    >>> unpacked(packed(torch.tensor([1.5, -2.0], dtype=torch.bfloat16)), torch.device("cpu"))
    tensor([ 1.5000, -2.0000], dtype=torch.bfloat16)
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return Packed(flat.numpy(), tensor.dtype, tuple(tensor.shape))


def unpacked(parcel: Packed, device: torch.device) -> Tensor:
    """The tensor on ``device``; a copy, because shared memory is read-only."""
    return torch.from_numpy(parcel.bytes.copy()).view(parcel.dtype).reshape(parcel.shape).to(device)


def tensors_of(task: JobTask) -> dict[str, Tensor]:
    """All tensors of a task, by their place in it."""
    named = {
        f"{kind}/{name}": tensor
        for kind in ("frozen", "vectors", "facts")
        for name, tensor in getattr(task, kind).items()
    }
    return {"start": task.start, **named}


def without_tensors(task: JobTask) -> JobTask:
    """The task without tensors."""
    return replace(task, start=_NOTHING, frozen={}, vectors={}, facts={})


def with_tensors(task: JobTask, tensors: Mapping[str, Tensor]) -> JobTask:
    """The inverse of :func:`without_tensors` and :func:`tensors_of`."""

    def of(kind: str) -> dict[str, Tensor]:
        return {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}

    return replace(task, start=tensors["start"], frozen=of("frozen/"), vectors=of("vectors/"), facts=of("facts/"))


def tensors_of_result(result: JobResult) -> dict[str, Tensor]:
    """All tensors of a result, by their place in it."""
    kept = {f"kept/{name}": tensor for name, tensor in result.kept.items()}
    return {"final": result.final, "cross_entropies": result.cross_entropies, **kept}


def as_result(tensors: Mapping[str, Tensor], batch_sizes: tuple[int, ...]) -> JobResult:
    """The inverse of :func:`tensors_of_result`."""
    kept = {name.removeprefix("kept/"): tensor for name, tensor in tensors.items() if name.startswith("kept/")}
    return JobResult(tensors["final"], tensors["cross_entropies"], batch_sizes, kept)


def packed_result(result: JobResult) -> PackedResult:
    """A result in the form for sending."""
    return PackedResult(
        {name: packed(tensor) for name, tensor in tensors_of_result(result).items()}, result.batch_sizes
    )


def result_of(parcel: PackedResult, device: torch.device) -> JobResult:
    """The inverse of :func:`packed_result`."""
    return as_result({name: unpacked(one, device) for name, one in parcel.tensors.items()}, parcel.batch_sizes)
