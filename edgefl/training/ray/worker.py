"""The code that runs on a worker of a Ray cluster.

Tensors are sent as NumPy arrays, which Ray keeps in the nodes' shared memory without copying them into a pickle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import JobData, JobResult, JobTask
from edgefl.training.evaluation import BatchScore, evaluate_batches
from edgefl.training.local_training import train_job
from edgefl.training.serialization import joined, split

MODELS_KEPT = 2
"""Number of models with their data that a worker keeps: the scenario's, and one that a method adapted."""


class SharedInputs(NamedTuple):
    """Shared by all jobs: placed in the cluster's object store once, and unpacked once by each worker."""

    model: BlockModel
    data: JobData
    device: torch.device
    precision: Precision


def train_sent(place: Sequence[Any], bare: JobTask, tensors: Mapping[str, Any]) -> tuple[JobResult, dict[str, Any]]:
    """Train one job, exactly as the sequential engine does; the result without its tensors, and the tensors.

    ``place`` is the reference to the :class:`SharedInputs`, in a list, so that Ray does not unpack it for every job.
    ``tensors`` are the job's tensors, or their references in the object store, by name.
    """
    import ray

    shared = _shared_inputs(place)
    arrays = {name: ray.get(one) if isinstance(one, ray.ObjectRef) else one for name, one in tensors.items()}
    task = joined(bare, {name: unpacked(array, shared.device) for name, array in arrays.items()})
    result, trained = split(train_job(task, shared.model, shared.data, precision=shared.precision))
    return result, {name: packed(tensor) for name, tensor in trained.items()}


def score_batches(
    place: Sequence[Any], vector: NDArray[Any], batches: Sequence[slice], mode: Mapping[str, Any]
) -> list[BatchScore]:
    """The scores of the model ``vector`` on evaluation batches."""
    shared = _shared_inputs(place)
    weights = unpacked(vector, shared.device)
    return evaluate_batches(weights, batches, shared.model, shared.data, mode)


def packed(tensor: Tensor) -> NDArray[Any]:
    """A tensor in the form for sending."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def unpacked(array: NDArray[Any], device: torch.device) -> Tensor:
    """The tensor on ``device``; a copy, because shared memory is read-only."""
    return torch.from_numpy(array.copy()).to(device)


_inputs: OrderedDict[str, SharedInputs] = OrderedDict()


def _shared_inputs(place: Sequence[Any]) -> SharedInputs:
    import ray

    key = place[0].hex()
    if key not in _inputs:
        while len(_inputs) >= MODELS_KEPT:
            _inputs.popitem(last=False)
        _inputs[key] = ray.get(place[0])
    _inputs.move_to_end(key)
    return _inputs[key]
