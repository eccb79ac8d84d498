"""Allocations that follow one figure of each transfer: equal, proportional, shortest first, deadline first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgefl.methods.fits import Need
from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers, strict, ties


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
        tolerance = 1e-9 * max(1.0, transfers.now)
        due = transfers.deadline - transfers.after
        late = transfers.now + transfers.seconds > due + tolerance
        left = ties(transfers.left, 1e-9 * float(transfers.bytes.max()))
        return strict(late.astype(np.int64), ties(due, tolerance), left)
