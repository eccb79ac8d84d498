"""The clients' data as training and evaluation read it: batches, and facts about each client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.data.batches import JobBatches, StackedBatches, fetch, job_batches
from edgefl.data.dataset import Dataset
from edgefl.data.federated import FederatedData
from edgefl.methods.parts.objective import Batch
from edgefl.training.job_task import JobTask

BATCH, DEVICE_BATCH = 128, 1024
"""Images in an evaluation batch on a CPU, with every engine, and on an accelerator, which a small batch leaves idle."""


def batch_on(device: torch.device) -> int:
    """Images in an evaluation batch on a device."""
    return BATCH if device.type == "cpu" else DEVICE_BATCH


class ClientData:
    """A data set divided among clients, for training, with its evaluation split; reading is thread-safe.

    If the test set is partitioned, the model is evaluated on all
    clients' parts together (the cumulative accuracy of one model on its clients' data).
    """

    def __init__(self, data: FederatedData) -> None:
        self._data = data
        device = data.train.device
        self._label_counts = torch.from_numpy(data.label_counts).to(device)
        shards = data.evaluation_shards
        evaluated = torch.arange(len(data.evaluation)) if shards is None else torch.from_numpy(shards.indices)
        self._evaluated = evaluated.to(data.evaluation.store)

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
        data = self._data
        return job_batches(
            data.train,
            data.augment,
            data.shards.shard(task.client),
            task.options,
            task.steps,
            seed=task.seed,
            client=task.client,
            dispatch=task.dispatch,
        )

    def own(self, client: int, chosen: NDArray[np.int64] | None = None) -> OwnSamples:
        """The client's training samples, or those at some places of its shard, to evaluate a model on."""
        shard = self._data.shards.shard(client)
        return OwnSamples(self._data.train, torch.from_numpy(shard if chosen is None else shard[chosen]))

    def evaluation(self) -> Sequence[slice]:
        """The evaluation samples as consecutive batches of a fixed size."""
        return _batches(len(self._evaluated), self._data.evaluation.device)

    def evaluation_batch(self, place: slice) -> Batch:
        """One of the batches on the training device, without augmentation."""
        return fetch(self._data.evaluation, self._evaluated[place])


class OwnSamples(NamedTuple):
    """A client's own samples, at ``indices`` of the training set."""

    data: Dataset
    indices: Tensor

    def evaluation(self) -> Sequence[slice]:
        return _batches(len(self.indices), self.data.device)

    def evaluation_batch(self, place: slice) -> Batch:
        return fetch(self.data, self.indices[place])


def _batches(samples: int, device: torch.device) -> list[slice]:
    size = batch_on(device)
    return [slice(start, start + size) for start in range(0, samples, size)]
