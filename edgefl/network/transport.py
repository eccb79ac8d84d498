"""How a connection uses its path in addition to fair sharing: as a pure fluid, or like TCP."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from edgefl.network.fifo import FifoQueue
from edgefl.network.route import Alone
from edgefl.network.tcp import Opening, Tcp


@dataclass(frozen=True)
class Transport:
    """How a flow uses its path. The default is a pure fluid: whole capacities, plain latency, equal shares.

    Attributes:
        efficiency: the share of a link's capacity that carries payload.
        latency_factor: the delay before the first byte, in multiples of the path's latency (handshake, slow start).
        window: the maximum of bytes in flight, so that the rate is at most ``efficiency * window / (2 * latency)``;
            infinite for none.
        penalty_bytes: with a latency of L and links of B bytes/s, a flow's share of a contended link is in inverse
            proportion to ``L + sum(penalty_bytes / B)``; None for equal shares.
        connection_limit: the maximum rate of one flow, bit/s, whatever its path.
        multicast: whether transfers of one payload that one node begins at one instant cross each link once, at one
            rate for all.
        tcp: how connections begin, grow and lose packets; None for transfers that need no connection.
        queue: the unequal shares of flows in one queue; None for a queue for each flow, which makes shares equal.
    """

    efficiency: float = 1.0
    latency_factor: float = 1.0
    window: float = math.inf
    penalty_bytes: float | None = None
    connection_limit: float = math.inf
    multicast: bool = False
    tcp: Tcp | None = None
    queue: FifoQueue | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be combined."""
        if self.tcp is not None and self.multicast:
            raise ValueError("expected no multicast with tcp, because a connection has two ends")
        if self.tcp is not None and (self.latency_factor != 1.0 or self.window < math.inf):
            raise ValueError("expected no latency_factor and window with tcp, which has its own set-up and window")

    @property
    def allottable(self) -> bool:
        """Whether a server can set the shares of flows: each is one transfer of its own that no queue or TCP limits."""
        return not self.multicast and self.tcp is None and self.queue is None

    def limit(self, latency: float) -> float:
        """The maximum rate of a flow on a path of this one-way latency (seconds), bit/s."""
        window_limit = self.efficiency * self.window * 8.0 / (2.0 * latency) if latency > 0.0 else math.inf
        return min(self.connection_limit, window_limit)

    def alone(self, latency: float, bits_per_second: float, opening: Opening) -> Alone:
        """A transfer that has its path to itself.

        Args:
            latency: the path's one-way latency, seconds.
            bits_per_second: the path's capacity.
            opening: the state of the transfer's connection; without connections it changes nothing.
        """
        usable = min(self.limit(latency), self.efficiency * bits_per_second)
        if self.tcp is None:
            return Alone(self.latency_factor * latency, usable)
        sending = partial(self.tcp.seconds, bits_per_second=usable, latency=latency, opening=opening)
        steady = min(usable, self.tcp.steady_rate(latency))
        return Alone(latency + 2.0 * latency * opening.round_trips, steady, sending)

    def weight(self, latency: float, bits_per_second: Iterable[float]) -> float:
        """A flow's share relative to others, from its path's latency (seconds) and capacities.

        A link that is down stalls the flow anyway and is ignored.
        """
        if self.penalty_bytes is None:
            return 1.0
        penalty = latency + sum(8.0 * self.penalty_bytes / rate for rate in bits_per_second if rate > 0.0)
        return 1.0 / penalty if penalty > 0.0 else 1.0


def lv08(
    *,
    acknowledgements: Literal["none", "shared"] = "none",
    connection_limit: float = math.inf,
    multicast: bool = False,
) -> Transport:
    """TCP as in SimGrid's LV08 model (Velho and Legrand, SIMUTools 2009; Velho et al., INRIA RR-7821, 2011).

    The delay before the first byte is 13.01 times the path's latency, 97 % of a capacity carries payload, the window is
    4 MiB, and shares fall with the round-trip time.

    Args:
        acknowledgements: ``shared`` where both directions are one medium: acknowledgements take 5 % more of each link.
        connection_limit: the maximum rate of one flow, bit/s.
        multicast: as for :class:`Transport`.

    SimGrid's documented case, 100 kB over 1 Mbit/s and 10 ms:

    >>> for acknowledgements in ("shared", "none"):
    ...     transport = lv08(acknowledgements=acknowledgements)
    ...     print(f"{transport.latency_factor * 0.01 + 8e5 / (transport.efficiency * 1e6):.6f}")
    0.996079
    0.954842
    """
    return Transport(
        efficiency=0.97 / 1.05 if acknowledgements == "shared" else 0.97,
        latency_factor=13.01,
        window=4194304.0,
        penalty_bytes=20537.0,
        connection_limit=connection_limit,
        multicast=multicast,
    )
