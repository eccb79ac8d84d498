"""Bandwidth allocations, which decide how transfers share links: their interface, and the five of edgefl."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.needs import Need
from edgefl.options import Options
from edgefl.registry import Registry, chosen_part
from edgefl.units import slack


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
    """A bandwidth allocation as a scenario describes it; its fields are the options.

    Its answers depend on the arguments only, so that ``edgefl verify`` can ask for them again.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"server's links"})
    """What it needs of its scenario; see :mod:`edgefl.methods.needs`."""

    @abstractmethod
    def order(self, transfers: Transfers) -> Order:
        """The shares of these transfers on their links from now on.

        Called when one of them begins or ends to use its links, when a capacity of these links changes, and after
        :meth:`lasts`.
        """

    def lasts(self, transfers: Transfers, order: Order, rates: NDArray[np.float64]) -> float:
        """Seconds after which :meth:`order` must be called again even if nothing else happens; infinite for never.

        ``rates`` follow from the order, bit/s.
        """
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


@ALLOCATIONS.register("equal")
class Equal(BandwidthSpec):
    """Max-min fair shares; the transport decides about weights (round-trip times, one queue)."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    def order(self, transfers: Transfers) -> Order:
        """The network computes these shares without calling this."""
        count = len(transfers.bytes)
        return Order(np.zeros(count, np.int64), np.ones(count))


@ALLOCATIONS.register("proportional")
class Proportional(BandwidthSpec):
    """Shares in proportion to the transfers' sizes.

    Transfers that begin together, and that only one shared link limits, end together.
    """

    def order(self, transfers: Transfers) -> Order:
        return Order(np.zeros(len(transfers.bytes), np.int64), np.maximum(transfers.bytes, 1.0))


@ALLOCATIONS.register("shortest_first")
class ShortestFirst(BandwidthSpec):
    """The transfer with the fewest bytes left gets all that it can use, then the next one.

    On one link, without limits of their own, transfers have the least mean duration (Schrage, "A proof of the
    optimality of the shortest remaining processing time discipline", Operations Research 16, 1968). The order is
    decided anew when a transfer begins or ends, or a capacity changes; among equal ones the first that began is first.
    """

    def order(self, transfers: Transfers) -> Order:
        return strict(ties(transfers.left, 1e-9 * float(transfers.bytes.max())))


@ALLOCATIONS.register("deadline_first")
class DeadlineFirst(BandwidthSpec):
    """Earliest due time first: the round's deadline, minus the predicted seconds of computing and uploading after it.

    Transfers that would be late even alone come last, because serving them makes others late (the overload of
    earliest-deadline-first scheduling). Among transfers that are due at the same time, such as all uploads of a round,
    those with the fewest bytes left come first. The order is decided anew when a transfer begins or ends, or a capacity
    changes.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"server's links", "rounds", "deadline"})

    def order(self, transfers: Transfers) -> Order:
        # In a round of one instant, rounding must decide neither about lateness nor about the order.
        tolerance = slack(transfers.now)
        due = transfers.deadline - transfers.after
        late = transfers.now + transfers.seconds > due + tolerance
        left = ties(transfers.left, 1e-9 * float(transfers.bytes.max()))
        return strict(late.astype(np.int64), ties(due, tolerance), left)


@ALLOCATIONS.register("least_makespan")
class LeastMakespan(BandwidthSpec):
    """The transfer whose client would need longest from now on comes first; equal ones stay equal.

    A transfer's *level* is the seconds that its rest would take alone and, for a download, the predicted seconds of
    computing and uploading after it. The highest level gets all that it can use. Transfers of one level get rates in
    proportion to those that they would have alone, so their levels fall together. When a level reaches the next one,
    both continue together. This is the level algorithm for preemptive tasks (Muntz and Coffman, J. ACM 17, 1970;
    Horvath, Lam and Sethi, J. ACM 24, 1977), with a link in place of processors: each transfer takes any share of the
    link up to a limit of its own.

    On one shared link the last upload ends as early as with any rates, even for who knows all later uploads in advance:
    of ``left`` bits with rates of at most ``alone``, the bits that cannot be sent in the last ``u`` seconds before the
    end are ``max(0, left - alone * u)``, and serving the highest levels makes their sum least for every ``u``.

    Downloads that begin together end so that the last client has its update ready as early as possible if uploads do
    not wait for each other. The two directions together are not exact: see ``downloads``.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"server's links", "rounds", "star"})

    downloads: bool = Field(
        default=False,
        description="true: downloads too, so that slow clients compute early; false: downloads have equal shares, and "
        "no round is longer than with equal shares only",
    )

    def order(self, transfers: Transfers) -> Order:
        count = len(transfers.bytes)
        if not (self.downloads or transfers.up.all()):
            return Order(np.zeros(count, np.int64), np.ones(count))
        levels = self._levels(transfers)
        finite = levels[levels < math.inf]
        # Far below 1e-9 of the time of day or of a duration, and far above the rounding errors of both.
        tolerance = 1e-11 * max(1.0, transfers.now, float(finite.max(initial=0.0)))
        return Order(ties(-levels, tolerance), np.where(transfers.alone > 0.0, transfers.alone, 1.0))

    def lasts(self, transfers: Transfers, order: Order, rates: NDArray[np.float64]) -> float:
        """Seconds until a level reaches the next lower one."""
        falling = np.divide(rates, transfers.alone, out=np.zeros(len(rates)), where=transfers.alone > 0.0)
        by_rank = np.argsort(order.rank, kind="stable")
        levels, falling, rank = self._levels(transfers)[by_rank], falling[by_rank], order.rank[by_rank]
        closing = falling[:-1] - falling[1:]
        meet = (rank[:-1] < rank[1:]) & (closing > 0.0) & (levels[:-1] < math.inf)
        gaps = levels[:-1][meet] - levels[1:][meet]
        return float((gaps / closing[meet]).min(initial=math.inf))

    @staticmethod
    def _levels(transfers: Transfers) -> NDArray[np.float64]:
        return np.asarray(transfers.seconds + transfers.after)
