"""The transfer whose client would need longest first."""

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.scheduling.bandwidth.base import ALLOCATIONS, BandwidthSpec, Order, Transfers, ties


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

    needs = frozenset({"server's links", "rounds", "star"})

    downloads: bool = Field(False, description="also downloads: slow clients compute early; rounds may be longer")

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
