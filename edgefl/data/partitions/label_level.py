"""FedBR's level ε: the share of one class in a client's data, or the number of classes that a client lacks."""

from bisect import bisect_left
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.partitions.base import (
    ClasswisePartition,
    Partition,
    require_a_sample_for_each,
    require_samples_of_each_class,
)
from edgefl.data.sharding import Integers, Rng, Shards
from edgefl.errors import UserError


class LabelLevel(ClasswisePartition):
    """Equal shards with classes skewed to level ε (FedBR, "Data Division"); ε = 0 is a random equal split.

    ``dominant`` (the paper on CIFAR-10): ε·10 % of a client's images are of one class, the rest is distributed evenly
    over the other classes; client k's class is k modulo the number of classes. ``missing`` (the paper on CIFAR-100): a
    client lacks ε·10 % of the classes and has the others evenly. ``auto`` is ``dominant`` for up to ten classes.

    All shards have the same size: the largest for which every class has enough images. Remaining images are not used.
    """

    kind: Literal["label_level"] = Field(default="label_level", description="FedBR's non-IID level ε")
    level: int = Field(ge=0, le=9, description="ε: 0 is IID, 9 the most skewed")
    form: Literal["auto", "dominant", "missing"] = Field(
        default="auto",
        description="dominant: ε·10 % of a client's samples are of one class; missing: a client lacks ε·10 % of the "
        "classes; auto: dominant for up to ten classes, missing for more",
    )

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        if self.level == 0:
            return np.full(clients, require_a_sample_for_each(class_sizes, clients), dtype=np.int64)
        return super().sizes(class_sizes, clients, rng)

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        if self.level:
            return super().split(labels, classes, clients, rng)
        return Partition.split(self, labels, classes, clients, rng)

    def counts(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """The order of classes is drawn in both forms, though only one of them has it."""
        order = rng.permutation(len(class_sizes))
        return self._counts(order, clients, self._size(class_sizes, clients, order))

    def _counts(self, order: Integers, clients: int, size: int) -> Integers:
        if self._is_dominant(len(order)):
            return dominant_counts(len(order), clients, self.level, size)
        return missing_counts(order, clients, self.level, size)

    def _is_dominant(self, classes: int) -> bool:
        return self.form == "dominant" or (self.form == "auto" and classes <= 10)

    def _size(self, class_sizes: Integers, clients: int, order: Integers) -> int:
        """The largest size of all shards for which every class has enough images."""
        classes = len(class_sizes)
        limit = require_a_sample_for_each(class_sizes, clients)
        require_samples_of_each_class(class_sizes, self.kind)
        if classes < 2:
            raise UserError(f"partition label_level expects at least 2 classes, found {classes}")
        least = 1 if self._is_dominant(classes) else classes - missing_classes(classes, self.level)
        if least == 0:
            raise UserError(
                f"partition label_level with level {self.level} leaves a client none of {classes} classes; "
                "expected a lower level or form: dominant"
            )

        def too_large(size: int) -> bool:
            return bool((self._counts(order, clients, size).sum(axis=0) > class_sizes).any())

        size = bisect_left(range(1, limit + 1), True, key=too_large)
        if size < least:
            raise UserError(
                f"partition label_level with level {self.level} expects at least {least} samples for each client, "
                f"found enough of every class for {size} on {clients} clients; take fewer clients or a lower level"
            )
        return size


def _dealt(images: Integers | int, place: Integers | int, places: int) -> Integers:
    """The number of ``images`` at ``place`` if they are assigned one by one, cyclically, to ``places`` places."""
    return np.maximum(0, -(-(np.asarray(images) - place) // places))


def dominant_counts(classes: int, clients: int, level: int, size: int) -> Integers:
    """Images of each class for each client, ``[clients, classes]``, in the dominant form.

    The clients of one dominant class assign their remaining images cyclically to the other classes; each client
    continues where the previous one stopped. So a client's other classes differ by at most one image, and with a
    multiple of ``classes`` clients, all classes have the same demand.

    >>> dominant_counts(classes=10, clients=2, level=7, size=120)
    array([[84,  4,  4,  4,  4,  4,  4,  4,  4,  4],
           [ 4, 84,  4,  4,  4,  4,  4,  4,  4,  4]])
    """
    dominant = (level * size + 5) // 10
    rest = size - dominant
    client = np.arange(clients)
    turn, own = client // classes, client % classes
    counts = np.zeros((clients, classes), dtype=np.int64)
    counts[client, own] = dominant
    for step in range(classes - 1):
        extra = _dealt((turn + 1) * rest, step, classes - 1) - _dealt(turn * rest, step, classes - 1)
        counts[client, (own + 1 + step) % classes] = extra
    return counts


def missing_classes(classes: int, level: int) -> int:
    """The number of classes that a client lacks: ε·10 % of them, rounded to the nearest whole number.

    >>> missing_classes(100, 7), missing_classes(47, 9)
    (70, 42)
    """
    return (level * classes + 5) // 10


def missing_counts(order: Integers, clients: int, level: int, size: int) -> Integers:
    """Images of each class for each client, ``[clients, classes]``, in the missing form, ``size`` for each client.

    ``order`` is the order of the classes on a circle, a permutation. Clients have runs of adjacent classes that follow
    one another, so the numbers of clients per class differ by at most one. After each round of the circle, runs shift
    by one class, so that all runs occur.

    >>> missing_counts(np.arange(4), clients=4, level=5, size=6)
    array([[3, 3, 0, 0],
           [0, 0, 3, 3],
           [0, 3, 3, 0],
           [3, 0, 0, 3]])
    """
    classes = len(order)
    held = classes - missing_classes(classes, level)
    client = np.arange(clients)
    place = client * held + client // (classes // np.gcd(held, classes))
    counts = np.zeros((clients, classes), dtype=np.int64)
    for step in range(held):
        counts[client, order[(place + step) % classes]] = _dealt(size, step, held)
    return counts
