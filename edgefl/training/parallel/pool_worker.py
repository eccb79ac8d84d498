"""The code that a worker process runs: it trains jobs and evaluates batches exactly as the sequential engine does."""

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
from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.torch_settings import neutral_torch
from edgefl.training.base import JobData, JobTask
from edgefl.training.evaluation import BatchScore, evaluate_batches
from edgefl.training.local_training import train_job
from edgefl.training.parallel.shared_buffer import ObjectToken, Place, Region, SharedBuffer, Token, load
from edgefl.training.parcels import Packed, packed, tensors_of_result, unpacked, with_tensors

_KEPT = 4
"""Number of objects of each kind that a worker process keeps: data sets, models, buffers, methods."""

_CPU = torch.device("cpu")

Kept = TypeVar("Kept")
Sent = Place | Packed
"""A tensor for sending: its place in the buffer or, if the buffer is full, the tensor itself."""


class Unreadable(EdgeflError):  # noqa: N818  (what it is)
    """A received object cannot be unpickled; for example, its class cannot be imported."""


class SharedInputs(NamedTuple):
    """Shared by all jobs of an engine: model and data as shared objects, and the buffer for tensors."""

    model: ObjectToken
    data: ObjectToken
    buffer: Token
    precision: Precision


class Job(NamedTuple):
    """A job for sending: its method, the fields specific to the job, its tensors, and the region for its result."""

    method: bytes
    plain: Mapping[str, Any]
    tensors: Mapping[str, Sent]
    outbox: tuple[int, int]


class Trained(NamedTuple):
    """A job's result for sending: its tensors by name, and its batch sizes."""

    tensors: Mapping[str, Sent]
    batch_sizes: tuple[int, ...]


def sent(tensor: Tensor, region: Region) -> Sent:
    """Write a tensor to the shared region, or return it for the message."""
    return region.put(tensor) or packed(tensor)


def received(tensor: Sent, buffer: SharedBuffer) -> Tensor:
    """A tensor that the other process sent; if it is in the buffer, a view of the buffer's memory."""
    return buffer.at(tensor) if isinstance(tensor, Place) else unpacked(tensor, _CPU)


def train(shared: SharedInputs, job: Job) -> Trained:
    """Train one job.

    Raises:
        Unreadable: the method, the model or the data cannot be unpickled.
        TrainingFault: a local step failed.
    """
    with neutral_torch():  # reading the method may import a plug-in
        model, data, buffer = _opened(shared)
        method: JobTask = _kept(_methods, job.method, partial(pickle.loads, job.method))
        task = with_tensors(
            replace(method, **job.plain), {name: received(each, buffer) for name, each in job.tensors.items()}
        )
        result = train_job(task, model, data, precision=shared.precision)
    outbox = Region(buffer, *job.outbox)
    return Trained({name: sent(each, outbox) for name, each in tensors_of_result(result).items()}, result.batch_sizes)


def score(shared: SharedInputs, vector: Sent, batches: range, mode: bytes) -> list[BatchScore]:
    """Evaluate the model ``vector`` on some batches of the evaluation split, in a pickled mode.

    Raises:
        Unreadable: the model or the data cannot be unpickled.
    """
    with neutral_torch():
        model, data, buffer = _opened(shared)
        weights, places = received(vector, buffer), data.evaluation()
        how: Mapping[str, Any] = _kept(_modes, mode, partial(pickle.loads, mode))
        return evaluate_batches(weights, [places[number] for number in batches], model, data, how)


_models: OrderedDict[Any, BlockModel] = OrderedDict()
_data: OrderedDict[Any, JobData] = OrderedDict()
_buffers: OrderedDict[Any, SharedBuffer] = OrderedDict()
_methods: OrderedDict[Any, JobTask] = OrderedDict()
_modes: OrderedDict[Any, Mapping[str, Any]] = OrderedDict()


def _opened(shared: SharedInputs) -> tuple[BlockModel, JobData, SharedBuffer]:
    return (
        _kept(_models, shared.model, partial(load, shared.model)),
        _kept(_data, shared.data, partial(load, shared.data)),
        _kept(_buffers, shared.buffer, partial(SharedBuffer.found, shared.buffer)),
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
