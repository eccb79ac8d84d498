"""What a worker process does: it trains jobs and evaluates batches exactly as the sequential engine does."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from edgefl.errors import EdgeflError
from edgefl.learning.engine.base import JobData, JobTask
from edgefl.learning.engine.evaluation import evaluate_batch
from edgefl.learning.engine.local_training import train_job
from edgefl.learning.engine.parcels import Packed, packed, tensors_of_result, unpacked, with_tensors
from edgefl.learning.engine.shared_buffer import ObjectToken, Place, Region, SharedBuffer, Token, load
from edgefl.learning.engine.threads import one_core_each
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.precision import Precision

_KEPT = 4
"""Objects of each kind that a worker process keeps: data sets, models, buffers, methods."""

_CPU = torch.device("cpu")

Kept = TypeVar("Kept")
Sent = Place | Packed
"""A tensor on its way: where it lies in the buffer or, where that has no room, itself."""


class Unreadable(EdgeflError):  # noqa: N818  (what it is)
    """What was sent cannot be read here: its class cannot be imported, for example."""


class Numerics(NamedTuple):
    """What a process is set to that decides bits, beside the number of threads."""

    dtype: torch.dtype
    products: str
    deterministic: int
    onednn: bool

    @classmethod
    def present(cls) -> Numerics:
        """Those of this process."""
        return cls(
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.get_deterministic_debug_mode(),
            bool(torch.backends.mkldnn.enabled),
        )

    def adopt(self) -> None:
        """Set this process to them."""
        if self != Numerics.present():
            torch.set_default_dtype(self.dtype)
            torch.set_float32_matmul_precision(self.products)
            torch.set_deterministic_debug_mode(self.deterministic)
            torch.backends.mkldnn.enabled = self.onednn  # type: ignore[assignment]


class Ground(NamedTuple):
    """What all jobs of an engine stand on: model and data as shared objects, and the buffer that tensors travel in."""

    model: ObjectToken
    data: ObjectToken
    buffer: Token
    precision: Precision
    numerics: Numerics


class Job(NamedTuple):
    """A job on its way: its method, what the method's jobs differ in, its tensors, and where its result may lie."""

    method: bytes
    plain: Mapping[str, Any]
    tensors: Mapping[str, Sent]
    outbox: tuple[int, int]


class Trained(NamedTuple):
    """A job's result on its way: its tensors by name, and its batch sizes."""

    tensors: Mapping[str, Sent]
    batch_sizes: tuple[int, ...]


class Score(NamedTuple):
    """A batch's score on its way: right answers, summed cross-entropy, and images."""

    right: int
    cross_entropy: float
    images: int


def sent(tensor: Tensor, region: Region) -> Sent:
    """Put a tensor where the other process finds it."""
    return region.put(tensor) or packed(tensor)


def received(tensor: Sent, buffer: SharedBuffer) -> Tensor:
    """A tensor that the other process sent: the buffer's memory where it lies there."""
    return buffer.at(tensor) if isinstance(tensor, Place) else unpacked(tensor, _CPU)


def train(ground: Ground, job: Job) -> Trained:
    """Train one job.

    Raises:
        Unreadable: the method, the model or the data cannot be read here.
        TrainingFault: a local step failed.
    """
    model, data, buffer = _stand_on(ground)
    method: JobTask = _kept(_methods, job.method, partial(pickle.loads, job.method))
    task = with_tensors(
        replace(method, **job.plain), {name: received(each, buffer) for name, each in job.tensors.items()}
    )
    with one_core_each():
        result = train_job(task, model, data, precision=ground.precision)
    outbox = Region(buffer, *job.outbox)
    return Trained({name: sent(each, outbox) for name, each in tensors_of_result(result).items()}, result.batch_sizes)


def score(ground: Ground, vector: Sent, batches: range, mode: bytes) -> list[Score]:
    """Evaluate the model ``vector`` on some batches of the evaluation split, in a mode that was pickled.

    Raises:
        Unreadable: the model or the data cannot be read here.
    """
    model, data, buffer = _stand_on(ground)
    weights, places = received(vector, buffer), data.evaluation()
    with one_core_each():
        how: Mapping[str, Any] = _kept(_modes, mode, partial(pickle.loads, mode))
        scores = [evaluate_batch(weights, places[number], model, data, how) for number in batches]
    return [Score(int(each.right), float(each.cross_entropy), each.images) for each in scores]


_models: OrderedDict[Any, BlockModel] = OrderedDict()
_data: OrderedDict[Any, JobData] = OrderedDict()
_buffers: OrderedDict[Any, SharedBuffer] = OrderedDict()
_methods: OrderedDict[Any, JobTask] = OrderedDict()
_modes: OrderedDict[Any, Mapping[str, Any]] = OrderedDict()


def _stand_on(ground: Ground) -> tuple[BlockModel, JobData, SharedBuffer]:
    ground.numerics.adopt()
    return (
        _kept(_models, ground.model, partial(load, ground.model)),
        _kept(_data, ground.data, partial(load, ground.data)),
        _kept(_buffers, ground.buffer, partial(SharedBuffer.found, ground.buffer)),
    )


def _kept(known: OrderedDict[Any, Kept], key: Any, made: Callable[[], Kept]) -> Kept:
    if key not in known:
        try:
            known[key] = made()
        except Exception as error:
            raise Unreadable(f"{type(error).__name__}: {error}") from error
        while len(known) > _KEPT:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]
