"""The metric of models on each client's part of the test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefl.data.batches import fetch
from edgefl.data.dataset import Dataset
from edgefl.data.sharding import Integers, Shards
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.tasks.base import Task
from edgefl.training.device import exact_arithmetic
from edgefl.training.evaluation import PLAIN, batch_on


@dataclass(frozen=True, slots=True, eq=False)
class ClientMetric:
    """The scores of a task on each client's test part."""

    sums: NDArray[np.float64]  # sums of the samples' scores [clients, numbers]
    tested: Integers  # number of samples of each client's part [clients]; may be 0
    task: Task

    @property
    def each(self) -> NDArray[np.float64]:
        """The metric of each client ``[clients]``, NaN for clients that have nothing to be tested on."""
        values = [self._value(row) if row.any() else np.nan for row in self.sums]
        return np.array(values, dtype=np.float64)

    @property
    def mean(self) -> float:
        """Mean over the clients that are tested, with equal weights."""
        return float(self._known.mean())

    @property
    def cumulative(self) -> float:
        """The metric of all samples together: clients are weighted by their samples."""
        return self._value(self.sums.sum(axis=0))

    @property
    def worst_tenth(self) -> float:
        """Mean over the tenth of the clients with the worst values, at least one client.

        >>> from edgefl.tasks.classification import Classification
        >>> right = np.stack([np.arange(20.0), np.full(20, 20.0)], axis=1)
        >>> ClientMetric(right, np.full(20, 20), Classification()).worst_tenth
        0.025
        """
        known = np.sort(self._known)
        if self.task.measured.better == "lower":
            known = known[::-1]
        return float(known[: max(1, round(len(known) / 10))].mean())

    @property
    def _known(self) -> NDArray[np.float64]:
        each = self.each
        return each[~np.isnan(each)]

    def _value(self, sums: NDArray[np.float64]) -> float:
        return self.task.measured.bounded(self.task.value(sums))


def scores_of(
    vector: Tensor, model: BlockModel, data: Dataset, indices: Integers, mode: Mapping[str, Any]
) -> NDArray[np.float64]:
    """The task's scores of the model ``vector`` ``[size]`` for each sample at ``indices`` ``[samples, numbers]``.

    Without any, the result has a row of zeros. ``mode`` contains the differences from :data:`PLAIN`.
    """
    places = torch.from_numpy(indices if len(indices) else np.zeros(1, dtype=np.int64)).to(data.store)
    weights = model.layout.frozen(*model.layout.split(vector.clone()))
    parts = []
    with exact_arithmetic(data.device), torch.no_grad(), using(**{**PLAIN, **mode}):
        size = batch_on(data.device)
        for start in range(0, len(places), size):
            batch = fetch(data, places[start : start + size])
            parts.append(model.task.scores(model.apply_blocks(weights, batch.inputs), batch.labels))
    scores: NDArray[np.float64] = torch.cat(parts).cpu().numpy()
    return scores if len(indices) else np.zeros_like(scores)


def metric_of_each(
    models: Callable[[int], Tensor], model: BlockModel, data: Dataset, shards: Shards, mode: Mapping[str, Any]
) -> ClientMetric:
    """The metric of each client's own model on its part ``shards`` of ``data``; see :func:`scores_of`."""
    clients = range(len(shards.sizes))
    sums = [scores_of(models(client), model, data, shards.shard(client), mode).sum(axis=0) for client in clients]
    return ClientMetric(np.stack(sums), shards.sizes, model.task)


def metric_of_one(
    vector: Tensor, model: BlockModel, data: Dataset, shards: Shards, mode: Mapping[str, Any]
) -> ClientMetric:
    """The metric of one model on every client's part ``shards`` of ``data``; see :func:`scores_of`."""
    scores = scores_of(vector, model, data, shards.indices, mode)
    ends = zip(shards.offsets[:-1], shards.offsets[1:], strict=True)
    return ClientMetric(np.stack([scores[start:end].sum(axis=0) for start, end in ends]), shards.sizes, model.task)
