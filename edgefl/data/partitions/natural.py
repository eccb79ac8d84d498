"""The natural partition of the data: a client is a speaker, a writer or a device."""

from __future__ import annotations

from typing import Literal, NoReturn

import numpy as np
from pydantic import Field

from edgefl.data.partitions.base import Partition
from edgefl.data.sharding import Integers, Shards
from edgefl.errors import UserError


class Natural(Partition):
    """Client k has the samples of owner k; samples of further owners are not used.

    Only for data sets with an owner for each sample: ``shakespeare``, or data of your own with clients.
    """

    kind: Literal["natural"] = Field(default="natural", description="one client for each owner in the data")

    @property
    def by_owner(self) -> bool:
        """See :class:`Partition`."""
        return True

    def check(self, class_sizes: Integers, clients: int) -> None:
        """Do nothing: the owners are unknown before the data are read."""

    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Always raise an error: class sizes do not contain owners."""
        _refuse()

    def split(self, labels: Integers, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """Always raise an error: labels do not contain owners."""
        _refuse()

    def split_owned(
        self, labels: Integers, owner: Integers | None, classes: int, clients: int, rng: np.random.Generator
    ) -> Shards:
        """See :func:`split_by_owner`."""
        return split_by_owner(owner, clients, self.kind)


def split_by_owner(owner: Integers | None, clients: int, kind: str = "natural", *, every: bool = True) -> Shards:
    """The samples of owners 0 … ``clients``-1, owner by owner; samples of owner -1 belong to no client.

    Args:
        owner: the owner of each sample.
        clients: number of clients.
        kind: the kind of partition, for messages.
        every: whether there must be as many owners as clients; else clients without samples have none.

    Raises:
        UserError: the data have no owners, or fewer than there are clients.

    >>> split_by_owner(np.array([1, 0, 2, 1]), clients=2).shard(1).tolist()
    [0, 3]
    """
    if owner is None:
        _refuse()
    owners = int(owner.max(initial=-1)) + 1
    if every and owners < clients:
        raise UserError(f"partition {kind} expects at most {owners} clients, one for each owner, found {clients}")
    mine = np.flatnonzero((owner >= 0) & (owner < clients))
    return Shards.of(owner[mine], mine, clients)


def _refuse() -> NoReturn:
    raise UserError(
        "partition natural needs data that name the owner of each sample, as shakespeare or a file with clients does"
    )
