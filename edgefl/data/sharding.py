"""The assignment of images to clients, as one flat index."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError

Integers = NDArray[np.int64]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """A partition of (a part of) a data set over clients, in compressed rows."""

    indices: Integers  # positions in the data set, client after client; no position occurs twice
    offsets: Integers  # [clients + 1]; client k owns indices[offsets[k]:offsets[k + 1]]
    sizes: Integers = field(init=False)  # images of each client, [clients]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", np.diff(self.offsets))

    @classmethod
    def of(cls, owners: Integers, indices: Integers, clients: int) -> Shards:
        """The shards in which ``indices[i]`` belongs to client ``owners[i]``; ascending within each client.

        >>> Shards.of(np.array([1, 0, 1]), np.array([7, 2, 5]), clients=2).shard(1).tolist()
        [5, 7]
        """
        order = np.lexsort((indices, owners))
        offsets = np.zeros(clients + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners, minlength=clients), out=offsets[1:])
        return cls(indices[order].astype(np.int64, copy=False), offsets)

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def shard(self, client: int) -> Integers:
        """The positions of one client's images, ascending."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def together(self) -> Shards:
        """The images of all clients as those of one."""
        return Shards(np.sort(self.indices), self.offsets[[0, -1]])

    def label_counts(self, labels: Integers, classes: int) -> Integers:
        """Images of each class on each client, ``[clients, classes]``."""
        owners = np.repeat(np.arange(self.clients), self.sizes)
        cells = np.bincount(owners * classes + labels[self.indices], minlength=self.clients * classes)
        return cells.reshape(self.clients, classes).astype(np.int64, copy=False)


def deal(labels: Integers, counts: Integers, rng: Rng) -> Shards:
    """Distribute images so that client k gets exactly ``counts[k, c]`` of class c, in random order within a class.

    The sum of a column must not exceed the images of its class. Remaining images are not used.

    >>> labels = np.array([0, 0, 1, 1, 1])
    >>> deal(labels, np.array([[1, 2], [1, 0]]), np.random.default_rng(0)).label_counts(labels, 2).tolist()
    [[1, 2], [1, 0]]
    """
    clients, classes = counts.shape
    owners, indices = [], []
    for label in range(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        wanted = counts[:, label]
        if wanted.sum() > len(members):
            raise ValueError(f"class {label} has {len(members)} images, and {wanted.sum()} are requested")
        owners.append(np.repeat(np.arange(clients), wanted))
        indices.append(members[: wanted.sum()])
    return Shards.of(np.concatenate(owners), np.concatenate(indices), clients)


def cut_like_training(labels: Integers, training_counts: Integers, rng: Rng, what: str = "test") -> Shards:
    """Shards of the evaluation images; each class is distributed in proportion to its training images.

    ``training_counts`` is ``[clients, classes]``. Every count is within one image of the exact share, with a random
    rounding offset for each class. Images of a class that no client trains on are not used.

    >>> labels = np.repeat([0, 1], 10)
    >>> shards = cut_like_training(labels, np.array([[90, 10], [10, 90]]), np.random.default_rng(0))
    >>> shards.label_counts(labels, 2).tolist()
    [[9, 1], [1, 9]]
    """
    clients, classes = training_counts.shape
    if clients > len(labels):
        raise UserError(
            f"test: partitioned expects at most {len(labels)} clients, one for each {what} sample, found {clients}"
        )
    images = np.bincount(labels, minlength=classes)
    totals = training_counts.sum(axis=0)
    # Systematic rounding: floors of cumulative sums. Each class starts at a random phase, otherwise the same clients
    # would get the extra image of every class.
    phase = (rng.random(classes) * totals).astype(np.int64)
    running = np.vstack([np.zeros((1, classes), dtype=np.int64), np.cumsum(training_counts, axis=0)])
    counts = np.diff((running * images + phase) // np.maximum(totals, 1), axis=0)
    counts[:, totals == 0] = 0
    return deal(labels, counts, rng)
