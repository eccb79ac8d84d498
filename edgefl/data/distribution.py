"""Who holds what: the sizes of clients' data, and how their targets differ from those of all clients together."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefl.data.federated import FederatedData
from edgefl.data.sharding import Integers, Shards

Floats = NDArray[np.float64]
What = Literal["classes", "labels", "tokens", "numbers"]
"""The kinds of targets: one class of each sample, any number of labels, tokens of a sequence, or numbers."""


@dataclass(frozen=True, eq=False)
class DataDistribution:
    """The samples and targets of each client."""

    what: What
    sizes: Integers  # training samples of each client, [clients]
    unused: int  # training samples that no client has
    test_sizes: Integers | None  # test samples of each client; None unless the test set is partitioned
    # how often each class, label or token occurs on each client, [clients, categories]; None for numbers
    counts: Integers | None
    # the mean of each client's targets [clients] for numbers, over all numbers of a target; else None. NaN for a
    # client without samples.
    means: Floats | None = None
    # for numbers, the share of the targets' variance that is between clients, from 0 to 1
    between: float | None = None

    @cached_property
    def held(self) -> Integers | None:
        """The number of different classes, labels or tokens of each client."""
        return None if self.counts is None else (self.counts > 0).sum(axis=1)

    @cached_property
    def distances(self) -> Floats | None:
        """Total-variation distance ½ Σ |p_k − p| of clients' categories from all; ``None``, NaN: without any."""
        return None if self.counts is None else total_variation(self.counts)

    def summary(self) -> dict[str, Any]:
        """Smallest, median and largest of each figure over clients, as plain data."""
        figures = {
            "samples": self.sizes,
            "test_samples": self.test_sizes,
            self.what: self.held,
            "distance": self.distances,
            "target_mean": self.means,
        }
        return {name: _spread(values) for name, values in figures.items() if values is not None}


def data_distribution(data: FederatedData) -> DataDistribution:
    """The distribution of the training data of a federation."""
    tests, labels = data.evaluation_shards, data.train.labels.cpu().numpy()
    test_sizes = None if tests is None else tests.sizes
    return of_targets(labels, data.classes, data.shards, test_sizes, counted=data.train.task.counted(labels))


def of_targets(
    targets: NDArray[Any],
    categories: int,
    shards: Shards,
    test_sizes: Integers | None = None,
    *,
    counted: NDArray[np.bool_] | None = None,
) -> DataDistribution:
    """The distribution of samples with these targets.

    Targets are integers ``[samples]`` (classes) or ``[samples, length]`` (tokens), or floating-point numbers
    ``[samples, …]``, which are labels if all of them are 0 or 1. ``counted`` has their shape: only these classes or
    tokens are counted.

    >>> shards = Shards(np.arange(4), np.array([0, 3, 4]))
    >>> found = of_targets(np.array([0, 0, 1, 1]), 2, shards)
    >>> found.counts.tolist(), found.distances.round(3).tolist()
    ([[2, 1], [0, 1]], [0.167, 0.5])
    """
    mine = targets[shards.indices]
    rows = mine.reshape(len(mine), -1)
    what: What = "classes" if targets.ndim == 1 else "tokens"
    if targets.dtype.kind == "f":
        what = "labels" if np.isin(mine, (0, 1)).all() and len(mine) else "numbers"
    counts = means = between = None
    if what == "numbers":
        numbers = rows.astype(np.float64)
        sums = _sums(numbers, shards)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = sums / shards.sizes[:, None]
        means, between = each.mean(axis=1), _between(numbers, each, shards.sizes)
    elif what == "labels":
        counts = _sums(rows, shards).astype(np.int64)
    else:
        owners = np.repeat(np.arange(shards.clients), shards.sizes * rows.shape[1])
        cells = owners * categories + rows.ravel()
        if counted is not None:
            cells = cells[counted[shards.indices].ravel()]
        counts = np.bincount(cells, minlength=shards.clients * categories).reshape(shards.clients, categories)
    return DataDistribution(what, shards.sizes, len(targets) - len(mine), test_sizes, counts, means, between)


def total_variation(counts: Integers) -> Floats:
    """Total-variation distance of each row's shares from those of all rows together.

    >>> total_variation(np.array([[5, 5], [10, 0]])).tolist()
    [0.25, 0.25]
    """
    totals = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = counts / totals
    whole = counts.sum(axis=0) / max(int(counts.sum()), 1)
    distances: Floats = np.abs(shares - whole).sum(axis=1) / 2
    return distances


def _sums(rows: NDArray[Any], shards: Shards) -> Floats:
    """Sums of the rows of each client, ``[clients, columns]``; the rows are client after client."""
    running = np.vstack([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0, dtype=np.float64)])
    sums: Floats = np.diff(running[shards.offsets], axis=0)
    return sums


def _between(numbers: Floats, means: Floats, sizes: Integers) -> float:
    whole = numbers.mean(axis=0)
    total = float(((numbers - whole) ** 2).sum())
    apart = float((sizes[:, None] * np.nan_to_num(means - whole) ** 2).sum())
    return apart / total if total else 0.0


def _spread(values: NDArray[Any]) -> dict[str, float]:
    found = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if not len(found):
        return {}
    figures = {"smallest": found.min(), "median": np.median(found), "largest": found.max(), "mean": found.mean()}
    return {name: int(value) if float(value).is_integer() else float(value) for name, value in figures.items()}
