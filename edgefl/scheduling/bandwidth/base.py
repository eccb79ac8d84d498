"""The interface of bandwidth allocations, which decide how transfers share links."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.fits import Need
from edgefl.options import Options
from edgefl.registry import Registry, chosen_part


class Transfers(NamedTuple):
    """Transfers that are connected by shared links, in the order of their start; arrays with one entry for each."""

    now: float  # the virtual time, seconds
    bytes: NDArray[np.float64]
    left: NDArray[np.float64]
    alone: NDArray[np.float64]  # the rate of each if it were the only one, bit/s; 0 while a link of its path is down
    up: NDArray[np.bool_]  # whether it is a client's update
    after: NDArray[np.float64]  # predicted seconds from its end to its client's update's arrival; 0 for an update
    deadline: NDArray[np.float64]  # virtual time by which the update must have arrived, seconds; infinite for none

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The seconds that the rest of each would take alone; infinite while a link of its path is down."""
        seconds = np.full(len(self.left), math.inf)
        np.divide(8.0 * self.left, self.alone, out=seconds, where=self.alone > 0.0)
        return seconds


class Order(NamedTuple):
    """How transfers share their links."""

    rank: NDArray[np.int64]  # a transfer gets only what the transfers of lower ranks leave
    weight: NDArray[np.float64]  # above 0; transfers of one rank share what is left max-min fairly by weight


class BandwidthSpec(Options):
    """A bandwidth allocation as a scenario describes it; its answers depend on the arguments only."""

    needs: ClassVar[frozenset[Need]] = frozenset({"server's links"})
    """What it needs of its scenario; see :mod:`edgefl.methods.fits`."""

    @abstractmethod
    def order(self, transfers: Transfers) -> Order:
        """The transfers' shares from now on; asked when one begins or ends, a capacity changes, or they expire."""

    def lasts(self, transfers: Transfers, order: Order, rates: NDArray[np.float64]) -> float:
        """Seconds for which an order that gave these ``rates`` (bit/s) is valid at most; infinite: no limit."""
        return math.inf


def ties(values: NDArray[np.float64], tolerance: float) -> NDArray[np.int64]:
    """The places of values in ascending order; values that differ by less than the tolerance have the same place.

    >>> ties(np.array([3.0, 1.0, 1.0 + 1e-12, math.inf]), tolerance=1e-9)
    array([1, 0, 0, 2])
    """
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    with np.errstate(invalid="ignore"):  # two infinite values differ by NaN: they are equal
        rises = np.diff(ascending, prepend=ascending[:1]) > tolerance
    places = np.empty(len(values), np.int64)
    places[order] = np.cumsum(rises)
    return places


def strict(*keys: NDArray[Any]) -> Order:
    """One transfer after another, by the first key, then by the next ones, then by the start of the transfer.

    >>> strict(np.array([1, 0, 1]), np.array([5, 9, 4])).rank
    array([2, 0, 1])
    """
    count = len(keys[0])
    rank = np.empty(count, np.int64)
    rank[np.lexsort([np.arange(count), *reversed(keys)])] = np.arange(count)
    return Order(rank, np.ones(count))


def checked_order(answer: Order, count: int) -> Order:
    """The answer of :meth:`BandwidthSpec.order` for this many transfers; WrongAnswer if it makes no sense.

    >>> checked_order(([0, 1], [1, 2]), 2)
    Order(rank=array([0, 1]), weight=array([1., 2.]))
    """
    rank, weight = np.asarray(answer[0]), np.asarray(answer[1], np.float64)
    usable = rank.dtype.kind in "iu" and (np.isfinite(weight) & (weight > 0.0)).all()
    if not usable or rank.shape != (count,) or weight.shape != (count,):
        raise WrongAnswer(f"it returned {one_line(answer)}; expected {count} whole ranks, and {count} weights above 0")
    return Order(rank.astype(np.int64), weight)


ALLOCATIONS: Registry[type[BandwidthSpec]] = Registry(
    "bandwidth allocation", package="edgefl.scheduling.bandwidth", group="edgefl.bandwidth", base=BandwidthSpec
)
"""Every bandwidth allocation by name; ``edgefl.bandwidth`` entry points add to it."""


def bandwidth(entry: str | Mapping[str, Any]) -> BandwidthSpec:
    """The spec of a name or of a mapping with ``kind`` and options."""
    return chosen_part(ALLOCATIONS, entry)
