"""What engines get and return: jobs with all their inputs, the clients' data, and results; also as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.data.batches import JobBatches, StackedBatches, fetch, job_batches
from edgefl.data.dataset import Dataset
from edgefl.data.federated import FederatedData
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule
from edgefl.methods.parts.objective import Batch, Objective

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, eq=False)
class JobTask:
    """A training job with all inputs resolved to plain tensors and values."""

    method: str  # the method's label, for messages
    seed: int  # the run's seed; together with client and dispatch the key of every random draw of the job
    client: int
    round: int  # used in messages only; its effect on the learning rate is already in lr
    dispatch: int  # index of the client's job, from 0
    objective: Objective
    rule: LocalRule
    options: LocalOptions
    lr: float  # η_t of the round
    steps: int  # local steps H_k
    alpha: int  # number of the last blocks that were received; M for the whole model
    start: Tensor  # the weights before the first step [size]
    frozen: Mapping[str, Tensor] = field(default_factory=dict)  # frozen copies [size] by name
    # vectors [parameter_count] that the objective or the rule reads, by name
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    # facts about the client's data that the objective reads, by name
    facts: Mapping[str, Tensor] = field(default_factory=dict)
    rates: tuple[float, ...] = ()  # η of each local step, if they differ
    level: int = 0  # the capacity level whose part of the model is trained, which start is a vector of
    until: int = 0  # steps of a first part of the job, whose result has all local optimizer state; 0: the whole job
    sizes: tuple[int, ...] = ()  # the batch sizes of the steps of a first part, and its result's tensors
    begun: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class JobResult:
    """The result of a job."""

    final: Tensor  # the weights after the last step [size]
    # the task's mean loss of the local path on each step's batch [steps], a cross-entropy for classes
    cross_entropies: Tensor
    batch_sizes: tuple[int, ...]  # images in each step's batch
    # vectors [parameter_count] that the rule's local optimizer state adds to the client's state, by name
    kept: Mapping[str, Tensor] = field(default_factory=dict)


BATCH, DEVICE_BATCH = 128, 1024
"""Images in an evaluation batch on a CPU, with every engine, and on an accelerator, which a small batch leaves idle."""


class EvaluatedSamples:
    """Samples to evaluate a model on, at ``indices`` of a data set."""

    def __init__(self, data: Dataset, indices: Tensor) -> None:
        self._evaluated, self._indices = data, indices

    def evaluation(self) -> list[slice]:
        """The samples as consecutive batches of a fixed size."""
        size = BATCH if self._evaluated.device.type == "cpu" else DEVICE_BATCH
        return [slice(start, start + size) for start in range(0, len(self._indices), size)]

    def evaluation_batch(self, place: slice) -> Batch:
        """One of the batches on the training device, without augmentation."""
        return fetch(self._evaluated, self._indices[place])


class ClientData(EvaluatedSamples):
    """A data set divided among clients, for training, with its evaluation split; reading is thread-safe.

    If the test set is partitioned, the model is evaluated on all clients' parts together (the cumulative accuracy of
    one model on its clients' data).
    """

    def __init__(self, data: FederatedData) -> None:
        self._data = data
        device = data.train.device
        self._label_counts = torch.from_numpy(data.label_counts).to(device)
        shards = data.evaluation_shards
        evaluated = torch.arange(len(data.evaluation)) if shards is None else torch.from_numpy(shards.indices)
        super().__init__(data.evaluation, evaluated.to(data.evaluation.store))

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return self._data.clients

    def together(self) -> Self:
        """The same data with one client, which has the training images of all."""
        one = copy(self)
        one._data, one._label_counts = self._data.together(), self._label_counts.sum(0, keepdim=True)
        return one

    def samples(self, client: int) -> int:
        """n_k, the number of the client's training images."""
        return int(self._data.sizes[client])

    def facts(self, client: int) -> dict[str, Tensor]:
        """Facts about the client's data for the objective: ``label_counts`` ``[classes]``, ``relative_size``."""
        share = self._data.sizes[client] * self.clients / self._data.sizes.sum()
        counts = self._label_counts[client]
        return {"label_counts": counts, "relative_size": torch.tensor(share, dtype=torch.float32, device=counts.device)}

    def batches(self, task: JobTask) -> Iterator[Batch]:
        """The job's ``task.steps`` minibatches on the training device; the job's key determines them."""
        return self._plan(task).in_turn()

    def side_by_side(self, tasks: Sequence[JobTask]) -> Iterator[Batch] | None:
        """The minibatches of several jobs, step by step as ``[jobs, batch, ...]``; same values as :meth:`batches`.

        ``None`` if the jobs differ in their number of steps or images.
        """
        stacked = StackedBatches.of([self._plan(task) for task in tasks])
        return None if stacked is None else (stacked.step(step) for step in range(len(stacked.indices)))

    def _plan(self, task: JobTask) -> JobBatches:
        data, key = self._data, {"seed": task.seed, "client": task.client, "dispatch": task.dispatch}
        return job_batches(data.train, data.augment, data.shards.shard(task.client), task.options, task.steps, **key)

    def own(self, client: int, chosen: NDArray[np.int64] | None = None) -> EvaluatedSamples:
        """The client's training samples, or those at some places of its shard, to evaluate a model on."""
        shard = self._data.shards.shard(client)
        return EvaluatedSamples(self._data.train, torch.from_numpy(shard if chosen is None else shard[chosen]))


def split(value: Value) -> tuple[Value, dict[str, Tensor]]:
    """A value without its tensors, and the tensors by field, those of a mapping by ``field/name``."""
    bare: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for each in fields(value):
        part = getattr(value, each.name)
        if isinstance(part, Tensor):
            # Even an empty tensor takes a quarter of a millisecond to pickle.
            bare[each.name], tensors[each.name] = None, part
        elif isinstance(part, Mapping):
            bare[each.name] = {}
            tensors |= {f"{each.name}/{name}": tensor for name, tensor in part.items()}
    return replace(value, **bare), tensors


def joined(bare: Value, tensors: Mapping[str, Tensor]) -> Value:
    """The inverse of :func:`split`."""
    parts: dict[str, Any] = {}
    for each in fields(bare):
        part = getattr(bare, each.name)
        if part is None:
            parts[each.name] = tensors[each.name]
        elif isinstance(part, Mapping):
            parts[each.name] = within(tensors, each.name)
    return replace(bare, **parts)


def within(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors called ``prefix/name``, by name."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
