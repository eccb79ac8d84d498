"""What runs on a worker of a Ray cluster, and the form in which tensors travel to it and back.

Tensors travel as arrays of bytes, which Ray keeps in the nodes' shared memory without copying them into a pickle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.learning.engine.base import JobData, JobResult, JobTask
from edgefl.learning.engine.device import exact_arithmetic
from edgefl.learning.engine.evaluation import evaluate_batch
from edgefl.learning.engine.local_training import train_job
from edgefl.learning.engine.threads import one_core_each
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.precision import Precision

GROUNDS_KEPT = 2
"""Models with their data that a worker holds at a time: the scenario's, and one that a method adapted."""


class Ground(NamedTuple):
    """What jobs stand on: placed in the cluster's object store once, and unpacked once by each worker."""

    model: BlockModel
    data: JobData
    device: torch.device
    precision: Precision


class Packed(NamedTuple):
    """A tensor's bytes, and how to read them."""

    bytes: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]


class PackedResult(NamedTuple):
    """A job's result on its way: its tensors by name, and its batch sizes."""

    tensors: dict[str, Packed]
    batch_sizes: tuple[int, ...]


@dataclass(frozen=True)
class Parcel:
    """A job on its way: the task without its tensors, and beside it these, or where in the object store they are."""

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
    """The tensor again, on ``device``; a copy, because shared memory cannot be written to."""
    return torch.from_numpy(parcel.bytes.copy()).view(parcel.dtype).reshape(parcel.shape).to(device)


def tensors_of(task: JobTask) -> dict[str, Tensor]:
    """All tensors of a task, by the place where each belongs."""
    named = {
        f"{kind}/{name}": tensor
        for kind in ("frozen", "vectors", "facts")
        for name, tensor in getattr(task, kind).items()
    }
    return {"start": task.start, **named}


def without_tensors(task: JobTask) -> JobTask:
    """The task with nothing but plain values."""
    return replace(task, start=torch.empty(0), frozen={}, vectors={}, facts={})


def with_tensors(task: JobTask, tensors: Mapping[str, Tensor]) -> JobTask:
    """The task as it was before :func:`without_tensors` and :func:`tensors_of`."""

    def of(kind: str) -> dict[str, Tensor]:
        return {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}

    return replace(task, start=tensors["start"], frozen=of("frozen/"), vectors=of("vectors/"), facts=of("facts/"))


def train_parcel(place: Sequence[Any], parcel: Parcel) -> PackedResult:
    """Train one job, exactly as the sequential engine does.

    Args:
        place: the reference to the :class:`Ground`, in a list, so that Ray does not unpack it for every job.
        parcel: the job.

    Returns:
        The result.
    """
    import ray

    ground = _ground(place)
    tensors = {
        name: unpacked(ray.get(one) if isinstance(one, ray.ObjectRef) else one, ground.device)
        for name, one in parcel.tensors.items()
    }
    with one_core_each(), exact_arithmetic(ground.device, tf32=ground.precision == "tf32"):
        task = with_tensors(parcel.task, tensors)
        result = train_job(task, ground.model, ground.data, precision=ground.precision)
    kept = {f"kept/{name}": packed(tensor) for name, tensor in result.kept.items()}
    named = {"final": packed(result.final), "cross_entropies": packed(result.cross_entropies), **kept}
    return PackedResult(named, result.batch_sizes)


def result_of(parcel: PackedResult, device: torch.device) -> JobResult:
    """What :func:`train_parcel` returned, as a result."""
    tensors = {name: unpacked(one, device) for name, one in parcel.tensors.items()}
    kept = {name.removeprefix("kept/"): tensor for name, tensor in tensors.items() if name.startswith("kept/")}
    return JobResult(tensors["final"], tensors["cross_entropies"], parcel.batch_sizes, kept)


def score_batches(
    place: Sequence[Any], vector: Packed, batches: Sequence[slice], mode: Mapping[str, Any]
) -> list[tuple[int, float, int]]:
    """Right answers, summed cross-entropy and images of some evaluation batches under the model ``vector``."""
    ground = _ground(place)
    weights = unpacked(vector, ground.device)
    with one_core_each(), exact_arithmetic(ground.device):
        scores = [evaluate_batch(weights, batch, ground.model, ground.data, mode) for batch in batches]
    return [(int(score.right), float(score.cross_entropy), score.images) for score in scores]


_grounds: OrderedDict[str, Ground] = OrderedDict()


def _ground(place: Sequence[Any]) -> Ground:
    import ray

    key = place[0].hex()
    if key not in _grounds:
        while len(_grounds) >= GROUNDS_KEPT:
            _grounds.popitem(last=False)
        _grounds[key] = ray.get(place[0])
    _grounds.move_to_end(key)
    return _grounds[key]
