"""Equal shares."""

from typing import ClassVar

import numpy as np

from edgefl.methods.fits import Need
from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers


@ALLOCATIONS.register("equal")
class Equal(BandwidthSpec):
    """Max-min fair shares; the transport decides about weights (round-trip times, one queue)."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    def order(self, transfers: Transfers) -> Order:
        """The network computes these shares without calling this."""
        count = len(transfers.bytes)
        return Order(np.zeros(count, np.int64), np.ones(count))
