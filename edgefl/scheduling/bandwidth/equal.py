"""Equal shares."""

import numpy as np

from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers


@ALLOCATIONS.register("equal")
class Equal(BandwidthSpec):
    """Max-min fair shares; the transport decides about weights (round-trip times, one queue)."""

    needs = frozenset()

    def order(self, transfers: Transfers) -> Order:
        """The network computes these shares without calling this."""
        count = len(transfers.bytes)
        return Order(np.zeros(count, np.int64), np.ones(count))
