"""A subset of the training images, for experiments with fewer images than the set has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.data.sharding import Integers
from edgefl.randomness import generator


def class_counts(available: Sequence[int], images: int) -> Integers:
    """The number of images of each class among ``images`` images, in the set's proportions (largest remainder).

    >>> class_counts([600, 300, 100], 15).tolist()
    [9, 5, 1]
    """
    return largest_remainders(np.array(available, dtype=np.float64), images)


def largest_remainders(weights: NDArray[np.float64], total: int) -> Integers:
    """Whole numbers in proportion to ``weights`` with the sum ``total``; of equal remainders, the first are rounded up.

    >>> largest_remainders(np.array([1.0, 1.0, 2.0]), 6).tolist()
    [2, 1, 3]
    """
    exact = weights / sum(weights) * total
    counts = np.floor(exact).astype(np.int64)
    # Rounded, so that equal weights stay equal and the earlier one comes first.
    order = np.argsort(-np.round(exact - counts, 9), kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def chosen_images(labels: Integers, images: int) -> Integers:
    """Positions of the images to use, ascending; the same in every run, independent of its seed."""
    counts = class_counts(np.bincount(labels).tolist(), images)
    rng = generator(0, "training images")
    parts = [rng.permutation(np.flatnonzero(labels == label))[:count] for label, count in enumerate(counts)]
    return np.sort(np.concatenate(parts))
