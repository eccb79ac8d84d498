"""TCP's window after losses, in packets and round trips: halved by each loss, and a packet more in each round trip.

One of 1 / p packets is lost, as Mathis et al. (CCR 27(3), 1997) assume. After many losses the window grows from one
value to twice that value, which gives their formula. After the first one it may still be far above or below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

_STEADY = 0.05
"""A window that differs from that of the steady state by a smaller share counts as steady."""

_QUANTILES = 32
"""Of the number of packets before the first loss."""


@dataclass(frozen=True)
class CongestionAvoidance:
    """How a window changes from loss to loss.

    Attributes:
        loss: the probability that a packet is lost, above 0.
        every: packets for one acknowledgement, so round trips in which the window grows by a packet.

    >>> avoidance = CongestionAvoidance(loss=0.01)
    >>> round(avoidance.steady, 2), round(avoidance.round_trips(avoidance.steady), 2)  # 100 packets at 12.25 in each
    (8.16, 8.16)
    """

    loss: float
    every: int = 1

    @property
    def steady(self) -> float:
        """The window after a loss, after many losses."""
        return math.sqrt(2.0 / (3.0 * self.every * self.loss))

    def round_trips(self, window: float, packets: float | None = None) -> float:
        """Those in which these packets are sent, or as many as are sent until the next loss."""
        sent = 1.0 / self.loss if packets is None else packets
        return self.every * (math.sqrt(window**2 + 2.0 * sent / self.every) - window)

    def after_loss(self, window: float) -> float:
        """The window after the next loss, given that after the last one; exactly ``steady`` if it is close to it."""
        halved = (window + self.round_trips(window) / self.every) / 2.0
        return self.steady if abs(halved / self.steady - 1.0) <= _STEADY else halved

    def before_first_loss(self, packets: float) -> float:
        """The expected number of packets that are sent before the first loss (Cardwell et al., INFOCOM 2000, eq. 5)."""
        return self._some_loss(packets) * (1.0 - self.loss) / self.loss + 1.0

    def after_first_loss(self, packets: float, first: float, most: float) -> float:
        """The window after the first loss of a transfer in slow start.

        It varies widely with the number of packets before the loss. The result is the window with which the transfer
        takes as long, if nothing else limits it, as it takes in the mean over that number's distribution.

        Args:
            packets: the size of the transfer.
            first: its first window.
            most: the maximum window.
        """
        return _after_first_loss(self, packets, first, most)

    def _some_loss(self, packets: float) -> float:
        # expm1 and log1p are exact for a small probability.
        return -math.expm1(packets * math.log1p(-self.loss))

    def _slow_start(self, packets: float, first: float) -> float:
        """Round trips of slow start in which these packets are sent."""
        growth = 1.0 + 1.0 / self.every
        return math.log1p(packets * (growth - 1.0) / first) / math.log(growth)

    def _rest(self, packets: float, window: float) -> float:
        """Round trips in which the packets after a loss are sent."""
        trips, lost_after = 0.0, 1.0 / self.loss
        while packets > lost_after and window != self.steady:
            trips += self.round_trips(window)
            packets -= lost_after
            window = self.after_loss(window)
        return trips + packets * self.loss * self.round_trips(window)


@lru_cache(maxsize=4096)
def _after_first_loss(avoidance: CongestionAvoidance, packets: float, first: float, most: float) -> float:
    some = avoidance._some_loss(packets)
    trips = []
    for number in range(_QUANTILES):
        sent = math.log1p(-some * (number + 0.5) / _QUANTILES) / math.log1p(-avoidance.loss)
        # The packets that follow the lost one have doubled the window once more when the loss is noticed.
        window = min(first + sent / avoidance.every, most) / 2.0
        trips.append(avoidance._slow_start(sent, first) + avoidance._rest(packets - sent, window))
    mean = some * fmean(trips) + (1.0 - some) * avoidance._slow_start(packets, first)
    expected = avoidance.before_first_loss(packets)
    target = mean - avoidance._slow_start(expected, first)
    low, high = 0.5, max(most, 1.0)
    for _ in range(50):
        window = math.sqrt(low * high)
        low, high = (low, window) if avoidance._rest(packets - expected, window) < target else (window, high)
    return math.sqrt(low * high)
