"""The held-out part of the training images, used for tuning learning rates."""

from __future__ import annotations

import numpy as np

from edgefl.data.sharding import Integers
from edgefl.randomness import generator


def held_out(labels: Integers, origin: Integers | None, share: float) -> tuple[Integers, Integers]:
    """Positions to train on and positions held out for validation, both ascending.

    Args:
        labels: the class of each training image.
        origin: the original of each image; all copies of an original are in the same part. ``None``: every image is an
            original.
        share: share of the originals of each class, rounded to the nearest whole number, but at least one if there are
            two.

    The choice is the same in every run, independent of its seed, so a rate tuned on these images is never tested on
    them.

    >>> kept, held = held_out(np.array([0, 0, 0, 0, 1, 1]), np.array([5, 5, 6, 6, 7, 8]), 0.5)
    >>> len(held), bool(held[0] + 1 == held[1])
    (3, True)
    """
    rng = generator(0, "validation")
    groups = np.arange(len(labels)) if origin is None else origin
    names, first, group = np.unique(groups, return_index=True, return_inverse=True)
    group_labels = labels[first]
    out = np.zeros(len(names), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(group_labels == label))
        wanted = max(round(share * len(members)), 1) if len(members) > 1 else 0
        out[members[: min(wanted, len(members) - 1)]] = True
    held = out[group]
    return np.flatnonzero(~held), np.flatnonzero(held)
