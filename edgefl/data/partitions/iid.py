"""Partitions that ignore classes: equal shards, or sizes that differ."""

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.choice import largest_remainders
from edgefl.data.partitions.base import Partition, require_a_sample_for_each
from edgefl.data.sharding import Integers, Shards
from edgefl.errors import UserError


class Iid(Partition):
    """Every client gets the same number of images, drawn at random independent of their class.

    The remaining images are not used.
    """

    kind: Literal["iid"] = Field(default="iid", description="equal shards drawn at random")

    def check(self, class_sizes: Integers, clients: int) -> None:
        require_a_sample_for_each(class_sizes, clients)

    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """The same size for all; nothing is drawn."""
        return np.full(clients, require_a_sample_for_each(class_sizes, clients), dtype=np.int64)

    def split(
        self, labels: Integers, classes: int, clients: int, rng: np.random.Generator, owner: Integers | None = None
    ) -> Shards:
        require_a_sample_for_each(np.bincount(labels, minlength=classes), clients)
        return iid_shards(len(labels), clients, rng)


def iid_shards(images: int, clients: int, rng: np.random.Generator) -> Shards:
    """A random permutation of the images, split into ``clients`` equal pieces."""
    size = images // clients
    chosen = rng.permutation(images)[: size * clients]
    return Shards.of(np.repeat(np.arange(clients), size), chosen, clients)


class Quantity(Partition):
    """Sizes in proportion to draws from a log-normal distribution, as in large fleets (FedScale); classes are random.

    All images are used.
    """

    kind: Literal["quantity"] = Field(default="quantity", description="log-normal sizes, classes at random")
    sigma: float = Field(
        default=1.0,
        ge=0,
        le=10,
        description="standard deviation of the logarithm of a size; 0: sizes differ by at most 1",
    )
    min_size: int = Field(default=1, ge=1, description="minimum samples per client")

    def check(self, class_sizes: Integers, clients: int) -> None:
        if require_a_sample_for_each(class_sizes, clients) < self.min_size:
            raise UserError(
                f"partition quantity expects at least {self.min_size} samples for each client (min_size), found "
                f"{int(class_sizes.sum())} training samples for {clients} clients"
            )

    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """The minimum size for each client, and shares of the remaining images in proportion to the draws."""
        self.check(class_sizes, clients)
        weights = np.exp(self.sigma * rng.standard_normal(clients))
        rest = int(class_sizes.sum()) - clients * self.min_size
        return self.min_size + largest_remainders(weights, rest)

    def split(
        self, labels: Integers, classes: int, clients: int, rng: np.random.Generator, owner: Integers | None = None
    ) -> Shards:
        sizes = self.sizes(np.bincount(labels, minlength=classes), clients, rng)
        return Shards.of(np.repeat(np.arange(clients), sizes), rng.permutation(len(labels)), clients)
