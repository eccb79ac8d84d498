"""Partitions that ignore classes: equal shards, or sizes that differ."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgefl.data.choice import largest_remainders
from edgefl.data.partitions.base import (
    ClasswisePartition,
    Partition,
    require_a_sample_for_each,
    require_samples_of_each_class,
)
from edgefl.data.partitions.by_owner import split_by_owner
from edgefl.data.sharding import Integers, Rng, Shards
from edgefl.errors import UserError


class Iid(Partition):
    """Every client gets the same number of random images, whatever their class; the rest is not used."""

    kind: Literal["iid"] = Field(default="iid", description="equal shards drawn at random")

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """The same size for all; nothing is drawn."""
        return np.full(clients, require_a_sample_for_each(class_sizes, clients), dtype=np.int64)


class Quantity(Partition):
    """Sizes in proportion to log-normal draws, as in large fleets (FedScale); all images, whatever their class."""

    kind: Literal["quantity"] = Field(default="quantity", description="log-normal sizes, classes at random")
    sigma: float = Field(1.0, ge=0, le=10, description="standard deviation of the logarithm of a size; 0: equal sizes")
    min_size: int = Field(default=1, ge=1, description="minimum samples per client")

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """The minimum size for each client, and shares of the remaining images in proportion to the draws."""
        if require_a_sample_for_each(class_sizes, clients) < self.min_size:
            raise UserError(
                f"partition quantity expects at least {self.min_size} samples for each client (min_size), found "
                f"{int(class_sizes.sum())} training samples for {clients} clients"
            )
        weights = np.exp(self.sigma * rng.standard_normal(clients))
        rest = int(class_sizes.sum()) - clients * self.min_size
        return self.min_size + largest_remainders(weights, rest)


class Sizes(Partition):
    """Given sizes, as of a deployment, drawn at random; with ``owners``, client k draws from those of owner k."""

    kind: Literal["sizes"] = Field(default="sizes", description="given sizes, drawn at random")
    images: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, description="samples of each client")
    owners: bool = Field(default=False, description="draw those of client k from the samples of owner k")

    @property
    def by_owner(self) -> bool:  # type: ignore[override]
        return self.owners

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """As given; nothing is drawn."""
        if len(self.images) != clients:
            raise UserError(f"partition sizes expects a number for each of {clients} clients, found {len(self.images)}")
        if (total := sum(self.images)) > class_sizes.sum():
            raise UserError(f"partition sizes asks for {total} samples in total, there are {class_sizes.sum()}")
        return np.array(self.images, np.int64)

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        if not self.owners:
            return super().split(labels, classes, clients, rng)
        sizes = self.sizes(np.bincount(labels, minlength=classes), clients, rng)
        owned = split_by_owner(owner, clients, self.kind)
        if (owned.sizes < sizes).any():
            short = int((owned.sizes < sizes).argmax())
            raise UserError(
                f"partition sizes asks for {sizes[short]} samples of owner {short}, who has {owned.sizes[short]}"
            )
        chosen = [rng.permutation(owned.shard(each))[: sizes[each]] for each in range(clients)]
        return Shards.of(np.repeat(np.arange(clients), sizes), np.concatenate(chosen), clients)


class SortAndPartition(ClasswisePartition):
    """Every client gets ``s`` equal blocks of ``s`` different classes (FedADC, Section IV).

    Each class is split into clients·s/classes equal blocks, of one size for all classes; remaining images are not used.
    The assignment of classes to clients is random, with exactly ``s`` classes for each client.
    """

    kind: Literal["shards"] = Field(default="shards", description="sort-and-partition, s classes for each client")
    s: int = Field(ge=1, description="classes of each client")

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """The same size for all; nothing is drawn."""
        return np.full(clients, self.s * self._block(class_sizes, clients), dtype=np.int64)

    def counts(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        return class_assignment(clients, len(class_sizes), self.s, rng) * self._block(class_sizes, clients)

    def _block(self, class_sizes: Integers, clients: int) -> int:
        classes = len(class_sizes)
        require_a_sample_for_each(class_sizes, clients)
        require_samples_of_each_class(class_sizes, self.kind)
        if self.s > classes:
            message = f"partition shards expects s to be at most the number of classes, {classes}, found {self.s}"
            raise UserError(message)
        if clients * self.s % classes:
            raise UserError(
                f"partition shards expects clients · s to be a multiple of the {classes} classes, found {clients} · "
                f"{self.s} = {clients * self.s}"
            )
        block = int(class_sizes.min()) // (clients * self.s // classes)
        if block == 0:
            raise UserError(
                f"partition shards expects at least {clients * self.s // classes} samples of each class, found "
                f"{class_sizes.min()}; take fewer clients or a smaller s"
            )
        return block


def class_assignment(clients: int, classes: int, s: int, rng: Rng) -> Integers:
    """Random class blocks ``[clients, classes]`` of 0 and 1, with equal sums, by what is left of each class."""
    left = np.full(classes, clients * s // classes, dtype=np.int64)
    assigned = np.zeros((clients, classes), dtype=np.int64)
    waits = rng.standard_exponential((clients, classes))
    for client in range(clients):
        # The s smallest of exponential times with these rates are a weighted draw without replacement.
        with np.errstate(divide="ignore"):
            arrival = waits[client] / left
        arrival[left == clients - client] = -1.0  # all clients that are left must take these
        chosen = np.argsort(arrival, kind="stable")[:s]
        assigned[client, chosen] = 1
        left[chosen] -= 1
    return assigned
