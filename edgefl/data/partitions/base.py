"""The base class of partitions: seeded rules that assign training samples to clients."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from edgefl.data.sharding import Integers, Rng, Shards, deal
from edgefl.errors import UserError
from edgefl.options import Component


class Partition(Component):
    """A partition of training samples over clients; sizes depend on the number of samples of each class alone."""

    kind: str
    by_class: ClassVar[bool] = False
    """It needs the class of each sample."""
    by_owner: ClassVar[bool] = False
    """The partition, and so its sizes, depend on the owners of samples."""

    def check(self, class_sizes: Integers, clients: int) -> None:
        """Check that these samples can be divided among that many clients."""
        self.sizes(class_sizes, clients, np.random.default_rng(0))

    @abstractmethod
    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """Images of each client, ``[clients]``: the sizes of the shards from :meth:`split` with an equal ``rng``."""

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        """The shards of samples with these labels and owners (or ``None``); by default random ones of :meth:`sizes`."""
        sizes = self.sizes(np.bincount(labels, minlength=classes), clients, rng)
        chosen = rng.permutation(len(labels))[: sizes.sum()]
        return Shards.of(np.repeat(np.arange(clients), sizes), chosen, clients)


class ClasswisePartition(Partition):
    """A partition given by the number of samples per class and client; the samples are chosen at random."""

    by_class = True

    @abstractmethod
    def counts(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """Images of each class for each client, ``[clients, classes]``."""

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        totals: Integers = self.counts(class_sizes, clients, rng).sum(axis=1)
        return totals

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        class_sizes = np.bincount(labels, minlength=classes)
        return deal(labels, self.counts(class_sizes, clients, rng), rng)


def require_a_sample_for_each(class_sizes: Integers, clients: int) -> int:
    """The largest equal number of samples per client."""
    samples = int(class_sizes.sum())
    if clients > samples:
        raise UserError(f"expected at most {samples} clients, one for each training sample, found {clients}")
    return samples // clients


def require_samples_of_each_class(class_sizes: Integers, kind: str) -> None:
    """Check that no class is empty, for partitions that give clients equal numbers of a class."""
    if not class_sizes.all():
        raise UserError(
            f"partition {kind} needs training samples of each class, and class {class_sizes.argmin()} of 0 to "
            f"{len(class_sizes) - 1} has none; use dirichlet or iid, or number the classes without gaps"
        )
