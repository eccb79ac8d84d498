"""Shares in proportion to sizes."""

import numpy as np

from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers


@ALLOCATIONS.register("proportional")
class Proportional(BandwidthSpec):
    """Shares in proportion to sizes: transfers that begin together on one shared link end together."""

    def order(self, transfers: Transfers) -> Order:
        return Order(np.zeros(len(transfers.bytes), np.int64), np.maximum(transfers.bytes, 1.0))
