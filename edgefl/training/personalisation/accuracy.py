"""The accuracy of models on each client's part of the test set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefl.data.batches import fetch
from edgefl.data.dataset import Dataset
from edgefl.data.sharding import Integers, Shards
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.training.device import exact_arithmetic
from edgefl.training.evaluation import BATCH, EVALUATED, PLAIN
from edgefl.training.lent import Lent


@dataclass(frozen=True, slots=True, eq=False)
class ClientAccuracy:
    """Correct predictions on each client's test part.

    Attributes:
        right: ``[clients]``.
        images: number of images of each client's part ``[clients]``; may be 0.
    """

    right: Integers
    images: Integers

    @property
    def each(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Accuracy of each client ``[clients]``, NaN for clients without test images."""
        return np.where(self.images > 0, self.right / np.maximum(self.images, 1), np.nan)

    @property
    def mean(self) -> float:
        """Mean over the clients with images, with equal weights."""
        return float(self._known.mean())

    @property
    def cumulative(self) -> float:
        """Σ right / Σ images: clients are weighted by their images."""
        return float(self.right.sum() / self.images.sum())

    @property
    def worst_tenth(self) -> float:
        """Mean over the tenth of the clients with the lowest accuracy, at least one client.

        >>> ClientAccuracy(np.arange(20), np.full(20, 20)).worst_tenth
        0.025
        """
        known = np.sort(self._known)
        return float(known[: max(1, round(len(known) / 10))].mean())

    @property
    def _known(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.each[self.images > 0]


def right_answers(
    vector: Tensor, model: BlockModel, data: Dataset, indices: Integers, mode: Mapping[str, Any]
) -> Tensor:
    """Whether the model ``vector`` ``[size]`` classifies each image at ``indices`` correctly, bool ``[images]``.

    Args:
        vector: parameters and buffers.
        model: the skeleton.
        data: the images, on the device of the vector.
        indices: positions of the images.
        mode: the differences from :data:`PLAIN`.
    """
    places = torch.from_numpy(indices).to(data.device)
    lent = Lent({EVALUATED: vector}, model.layout)
    weights = model.layout.frozen(*model.layout.split(lent[EVALUATED]))
    parts = []
    with exact_arithmetic(data.device), torch.no_grad(), using(**{**PLAIN, **mode}):
        for start in range(0, len(places), BATCH):
            batch = fetch(data, places[start : start + BATCH])
            parts.append(model.apply_blocks(weights, batch.inputs).argmax(dim=1) == batch.labels)
    lent.check(numbers=True)
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool, device=data.device)


def accuracy_of_each(
    models: Callable[[int], Tensor], model: BlockModel, data: Dataset, shards: Shards, mode: Mapping[str, Any]
) -> ClientAccuracy:
    """The accuracy of each client's own model on its part ``shards`` of ``data``; see :func:`right_answers`."""
    clients = range(len(shards.sizes))
    right = [right_answers(models(client), model, data, shards.shard(client), mode).sum() for client in clients]
    return ClientAccuracy(torch.stack(right).cpu().numpy(), shards.sizes)


def accuracy_of_one(
    vector: Tensor, model: BlockModel, data: Dataset, shards: Shards, mode: Mapping[str, Any]
) -> ClientAccuracy:
    """The accuracy of one model on every client's part ``shards`` of ``data``; see :func:`right_answers`."""
    right = right_answers(vector, model, data, shards.indices, mode).cpu().numpy()
    running = np.concatenate([[0], np.cumsum(right, dtype=np.int64)])
    return ClientAccuracy(np.diff(running[shards.offsets]), shards.sizes)
