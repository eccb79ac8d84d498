"""Dirichlet label skew with equal sizes (FedMLB, FedDyn) or unequal sizes (FedAlign, FedADC)."""

from bisect import bisect_right
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.data.partitions.base import ClasswisePartition, require_a_sample_for_each
from edgefl.data.sharding import Integers, Rng
from edgefl.errors import UserError

FLOOR = 1e-12
"""Minimum weight of a class that still has images: small alphas let shares underflow to 0."""
TRIES = 1000
"""Maximum number of draws of an unbalanced partition."""

Shares = NDArray[np.float64]


class Dirichlet(ClasswisePartition):
    """Class shares drawn from a symmetric Dirichlet distribution; the smaller ``alpha``, the stronger the skew."""

    kind: Literal["dirichlet"] = Field(default="dirichlet", description="Dirichlet label skew")
    alpha: float = Field(gt=0, allow_inf_nan=False, description="concentration; 0.1 strong skew, 100 nearly IID")
    balanced: bool = Field(default=True, description="true: equal sizes (FedMLB); false: unequal (FedAlign, FedADC)")
    order: Literal["sequential", "random_client"] = Field(
        "sequential", description="balanced only: one client after another (FedMLB), or in random order (FedDyn)"
    )
    form: Literal["class_wise", "client_wise"] = Field(
        "class_wise", description="unbalanced only: shares of a class over clients (FedAlign), or of a client (FedADC)"
    )
    min_size: int | None = Field(None, ge=1, description="unbalanced only; null: 10 class-wise, 1 client-wise")

    def check(self, class_sizes: Integers, clients: int) -> None:
        size = require_a_sample_for_each(class_sizes, clients)
        if not self.balanced and size < self._least():
            raise UserError(
                f"partition dirichlet expects at least {self._least()} samples for each client (min_size), found "
                f"{int(class_sizes.sum())} training samples for {clients} clients"
            )

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        if self.balanced:
            return np.full(clients, require_a_sample_for_each(class_sizes, clients), dtype=np.int64)
        return super().sizes(class_sizes, clients, rng)

    def counts(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """Counts by ``balanced``, ``order`` and ``form``; unbalanced ones are redrawn until all have ``min_size``."""
        self.check(class_sizes, clients)
        if self.balanced:
            draw = balanced_sequential if self.order == "sequential" else balanced_random_client
            return draw(class_sizes, clients, self.alpha, rng)
        attempt = unbalanced_class_wise if self.form == "class_wise" else unbalanced_client_wise
        smallest = 0
        for _ in range(TRIES):
            counts = attempt(class_sizes, clients, self.alpha, rng)
            if counts is None:
                continue
            smallest = max(smallest, int(counts.sum(axis=1).min()))
            if smallest >= self._least():
                return counts
        raise UserError(
            f"partition dirichlet with alpha {self.alpha:g} found no split of {int(class_sizes.sum())} samples over "
            f"{clients} clients in which each has at least {self._least()}; the best of {TRIES} left one with "
            f"{smallest}; take a larger alpha, fewer clients or a smaller min_size"
        )

    def _least(self) -> int:
        if self.min_size is not None:
            return self.min_size
        return 10 if self.form == "class_wise" else 1


def class_shares(classes: int, clients: int, alpha: float, rng: Rng) -> Shares:
    """A vector of class shares for each client from Dir(alpha), ``[clients, classes]``, with a minimum weight."""
    return np.maximum(rng.dirichlet(np.full(classes, alpha), size=clients), FLOOR)


def balanced_sequential(class_sizes: Integers, clients: int, alpha: float, rng: Rng) -> Integers:
    """FedMLB's partition: one client after another draws its images without replacement, weighted by class.

    Late clients get the remaining images, so their proportions differ from their shares. A weighted draw without
    replacement is equivalent to ordering images by exponential arrival times. Within a class all images have the same
    rate, so only the k-th arrival times of each class are drawn: their gaps are exponential with rate share · remaining
    images. This is exact and costs clients · classes · size.

    >>> counts = balanced_sequential(np.array([30, 30]), 4, 0.3, np.random.default_rng(0))
    >>> counts.sum(axis=1).tolist(), counts.sum(axis=0).tolist()
    ([15, 15, 15, 15], [30, 30])
    """
    classes = len(class_sizes)
    size = require_a_sample_for_each(class_sizes, clients)
    shares = class_shares(classes, clients, alpha, rng)
    left = class_sizes.astype(np.int64)
    counts = np.zeros((clients, classes), dtype=np.int64)
    for client in range(clients):
        running = left[:, None] - np.arange(min(size, int(left.max())))
        waits = rng.standard_exponential(running.shape)
        gaps = np.where(running > 0, waits / (shares[client][:, None] * np.maximum(running, 1)), np.inf)
        arrivals = np.cumsum(gaps, axis=1).ravel()
        first = np.argpartition(arrivals, size - 1)[:size] if size < arrivals.size else np.arange(arrivals.size)
        counts[client] = np.bincount(first // running.shape[1], minlength=classes)
        left -= counts[client]
    return counts


def balanced_random_client(class_sizes: Integers, clients: int, alpha: float, rng: Rng) -> Integers:
    """FedDyn's partition: a random client that is not full draws a class that has images left, by its shares."""
    classes = len(class_sizes)
    size = require_a_sample_for_each(class_sizes, clients)
    shares = class_shares(classes, clients, alpha, rng)
    left = class_sizes.tolist()
    shares[:, class_sizes == 0] = 0.0
    cumulated = np.cumsum(shares, axis=1).tolist()
    drawn = [[0] * classes for _ in range(clients)]
    room = [size] * clients
    open_clients = list(range(clients))
    for pick, point in rng.random((size * clients, 2)).tolist():
        place = int(pick * len(open_clients))
        client = open_clients[place]
        bounds = cumulated[client]
        label = bisect_right(bounds, point * bounds[-1])
        drawn[client][label] += 1
        room[client] -= 1
        left[label] -= 1
        if room[client] == 0:
            open_clients[place] = open_clients[-1]
            open_clients.pop()
        if left[label] == 0:
            shares[:, label] = 0.0
            cumulated = np.cumsum(shares, axis=1).tolist()
    return np.array(drawn, dtype=np.int64)


def unbalanced_class_wise(class_sizes: Integers, clients: int, alpha: float, rng: Rng) -> Integers | None:
    """FedAlign's attempt: Dir(alpha) by class among clients below the mean size; ``None`` if that is impossible."""
    mean = class_sizes.sum() / clients
    counts = np.zeros((clients, len(class_sizes)), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    for label, images in enumerate(class_sizes):
        shares = rng.dirichlet(np.full(clients, alpha)) * (held < mean)
        total = shares.sum()
        if not total > 0:
            return None
        cuts = (np.cumsum(shares / total) * images).astype(np.int64)
        # Cumulative sums of floats may end just below 1: the last client with a share gets the rest, full clients get
        # none.
        cuts[np.flatnonzero(shares)[-1] :] = images
        counts[:, label] = np.diff(cuts, prepend=0)
        held += counts[:, label]
    return counts


def unbalanced_client_wise(class_sizes: Integers, clients: int, alpha: float, rng: Rng) -> Integers:
    """FedADC's attempt: shares of each client from Dir(alpha), by class; the smallest clients get what is left."""
    shares = class_shares(len(class_sizes), clients, alpha, rng)
    counts: Integers = np.floor(shares / shares.sum(axis=0) * class_sizes).astype(np.int64)
    for label, images in enumerate(class_sizes):
        left = int(images - counts[:, label].sum())
        poorest = np.argsort(counts.sum(axis=1), kind="stable")[:left]
        counts[poorest, label] += 1
    return counts
