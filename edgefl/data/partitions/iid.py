"""Equal shards drawn at random."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.partitions.base import Partition, require_a_sample_for_each
from edgefl.data.sharding import Integers, Shards


class Iid(Partition):
    """Every client gets the same number of images, drawn at random independent of their class.

    The remaining images are not used.
    """

    kind: Literal["iid"] = Field(default="iid", description="equal shards drawn at random")

    def check(self, class_sizes: Integers, clients: int) -> None:
        """Check that there is an image for each client."""
        require_a_sample_for_each(class_sizes, clients)

    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """The same size for all; nothing is drawn."""
        return np.full(clients, require_a_sample_for_each(class_sizes, clients), dtype=np.int64)

    def split(self, labels: Integers, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """See :func:`iid_shards`."""
        require_a_sample_for_each(np.bincount(labels, minlength=classes), clients)
        return iid_shards(len(labels), clients, rng)


def iid_shards(images: int, clients: int, rng: np.random.Generator) -> Shards:
    """A random permutation of the images, split into ``clients`` equal pieces.

    >>> iid_shards(10, 3, np.random.default_rng(0)).sizes.tolist()
    [3, 3, 3]
    """
    size = images // clients
    chosen = rng.permutation(images)[: size * clients]
    return Shards.of(np.repeat(np.arange(clients), size), chosen, clients)
