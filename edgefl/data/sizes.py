"""The number of images of each client, for runs that need no images."""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgefl.data.sharding import Integers
from edgefl.data.spec import DataSpec
from edgefl.randomness import generator

Split = Literal["test", "validation"]
"""The evaluated images: the test images, or training images held out for validation."""


def reads_samples(spec: DataSpec, split: Split = "test") -> bool:
    """Whether the counts of clients' images depend on the data set's files."""
    return split == "validation" or spec.partition.by_owner or spec.known() is None


def shard_sizes(spec: DataSpec, seed: int, split: Split = "test") -> Integers:
    """Training images of each client, ``[clients]``: the sizes from ``load_federated``, without reading pixels.

    It reads no file if the data set declares its number of images per class, so a run without training needs no files.
    Only the validation split (to find the held-out images) and partitions by owner (to find the owners) read the set.

    Raises:
        UserError: data files are missing, or the images cannot be partitioned as requested.

    >>> from edgefl.data.sets.digits import Digits
    >>> shard_sizes(Digits(clients=5), seed=0).tolist()
    [2400, 2400, 2400, 2400, 2400]
    """
    if spec.partition.by_owner or split == "validation":
        from edgefl.data.dataset import load
        from edgefl.data.holdout import held_out

        train, _ = load(spec)
        if split == "validation":
            train = train.part(held_out(train.strata, train.origin, spec.validation)[0])
        strata, count, rng = train.strata, train.stratum_count, generator(seed, "partition")
        return spec.partition.split_owned(strata, train.owner, count, spec.clients, rng).sizes
    class_sizes = np.array(spec.describe().train, dtype=np.int64)
    return spec.partition.sizes(class_sizes, spec.clients, generator(seed, "partition"))
