"""The code that runs on a worker of a Ray cluster.

Tensors are sent as arrays of bytes, which Ray keeps in the nodes' shared memory without copying them into a pickle.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from edgefl.methods.parts.local_step import Precision
from edgefl.models.block_model import BlockModel
from edgefl.training.base import JobData
from edgefl.training.evaluation import BatchScore, evaluate_batches
from edgefl.training.local_training import train_job
from edgefl.training.parcels import Packed, PackedResult, Parcel, packed_result, unpacked, with_tensors

MODELS_KEPT = 2
"""Number of models with their data that a worker keeps: the scenario's, and one that a method adapted."""


class SharedInputs(NamedTuple):
    """Shared by all jobs: placed in the cluster's object store once, and unpacked once by each worker."""

    model: BlockModel
    data: JobData
    device: torch.device
    precision: Precision


def train_parcel(place: Sequence[Any], parcel: Parcel) -> PackedResult:
    """Train one job, exactly as the sequential engine does.

    Args:
        place: the reference to the :class:`SharedInputs`, in a list, so that Ray does not unpack it for every job.
        parcel: the job.

    Returns:
        The result.
    """
    import ray

    shared = _shared_inputs(place)
    tensors = {
        name: unpacked(ray.get(one) if isinstance(one, ray.ObjectRef) else one, shared.device)
        for name, one in parcel.tensors.items()
    }
    task = with_tensors(parcel.task, tensors)
    return packed_result(train_job(task, shared.model, shared.data, precision=shared.precision))


def score_batches(
    place: Sequence[Any], vector: Packed, batches: Sequence[slice], mode: Mapping[str, Any]
) -> list[BatchScore]:
    """The scores of the model ``vector`` on evaluation batches."""
    shared = _shared_inputs(place)
    weights = unpacked(vector, shared.device)
    return evaluate_batches(weights, batches, shared.model, shared.data, mode)


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
