"""The transfer with the fewest bytes left first."""

from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers, strict, ties


@ALLOCATIONS.register("shortest_first")
class ShortestFirst(BandwidthSpec):
    """The transfer with the fewest bytes left gets all that it can use, then the next one.

    On one link, without limits of their own, transfers have the least mean duration (Schrage, "A proof of the
    optimality of the shortest remaining processing time discipline", Operations Research 16, 1968). The order is
    decided anew when a transfer begins or ends, or a capacity changes; among equal ones the first that began is first.
    """

    def order(self, transfers: Transfers) -> Order:
        return strict(ties(transfers.left, 1e-9 * float(transfers.bytes.max())))
