"""The earliest due transfer first."""

import numpy as np

from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers, strict, ties
from edgefl.units import slack


@ALLOCATIONS.register("deadline_first")
class DeadlineFirst(BandwidthSpec):
    """Earliest due time first: the round's deadline, minus the predicted seconds of computing and uploading after it.

    Transfers that would be late even alone come last, because serving them makes others late (the overload of
    earliest-deadline-first scheduling). Among transfers that are due at the same time, such as all uploads of a round,
    those with the fewest bytes left come first. The order is decided anew at each change.
    """

    needs = frozenset({"server's links", "rounds", "deadline"})

    def order(self, transfers: Transfers) -> Order:
        # In a round of one instant, rounding must decide neither about lateness nor about the order.
        tolerance = slack(transfers.now)
        due = transfers.deadline - transfers.after
        late = transfers.now + transfers.seconds > due + tolerance
        left = ties(transfers.left, 1e-9 * float(transfers.bytes.max()))
        return strict(late.astype(np.int64), ties(due, tolerance), left)
