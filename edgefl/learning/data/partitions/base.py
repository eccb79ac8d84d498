"""What a partition is: a seeded rule that says which client owns which training images."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from edgefl.errors import UserError
from edgefl.learning.component import Component
from edgefl.learning.data.sharding import Integers, Shards, deal


class Partition(Component):
    """How the training images are spread over the clients (``data.partition``); its fields are its options.

    Sizes follow from the number of images of each class alone, so a run without training needs no data set.
    """

    kind: str

    @abstractmethod
    def check(self, class_sizes: Integers, clients: int) -> None:
        """Whether these images can be cut for that many clients.

        Raises:
            UserError: they cannot; the message says what was found and what was expected.
        """

    @abstractmethod
    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Images of each client, ``[clients]``: the sizes of the shards that :meth:`split` makes with an equal ``rng``.

        Raises:
            UserError: as :meth:`check`, or no draw met the rule's conditions.
        """

    @abstractmethod
    def split(self, labels: Integers, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """The shards of images with these ``labels``.

        Raises:
            UserError: as :meth:`sizes`.
        """


class ClasswisePartition(Partition):
    """A partition that decides how many images of each class a client gets; which ones, chance decides afterwards."""

    @abstractmethod
    def counts(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Images of each class for each client, ``[clients, classes]``.

        Raises:
            UserError: as :meth:`Partition.sizes`.
        """

    def sizes(self, class_sizes: Integers, clients: int, rng: np.random.Generator) -> Integers:
        """Row sums of :meth:`counts`."""
        totals: Integers = self.counts(class_sizes, clients, rng).sum(axis=1)
        return totals

    def split(self, labels: Integers, classes: int, clients: int, rng: np.random.Generator) -> Shards:
        """Images dealt out at random so that :meth:`counts` holds exactly."""
        class_sizes = np.bincount(labels, minlength=classes)
        return deal(labels, self.counts(class_sizes, clients, rng), rng)


def require_an_image_for_each(class_sizes: Integers, clients: int) -> int:
    """Images of each client when all get equally many, as many as possible.

    Raises:
        UserError: there are more clients than images.

    >>> require_an_image_for_each(np.array([30, 31]), 6)
    10
    """
    images = int(class_sizes.sum())
    if clients > images:
        raise UserError(f"expected at most {images} clients, one for each training image, found {clients}")
    return images // clients
