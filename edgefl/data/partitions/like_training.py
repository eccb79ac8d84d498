"""A partition of the test set with the class proportions of each client's training data (personalisation)."""

from __future__ import annotations

import numpy as np

from edgefl.data.sharding import Integers, Shards, deal
from edgefl.errors import UserError


def cut_like_training(
    labels: Integers, training_counts: Integers, rng: np.random.Generator, what: str = "test"
) -> Shards:
    """Shards of the evaluation images; each class is distributed in proportion to its training images.

    Args:
        labels: the classes of the evaluation images.
        training_counts: ``[clients, classes]``, the images of each class that each client trains on.
        rng: determines the rounding offset of each class and the assignment of images.
        what: the kind of samples, for messages.

    Every count is within one image of the exact share. Images of a class that no client trains on are not used.

    Raises:
        UserError: there are more clients than images.

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
