"""A TCP connection as a fluid: set-up, headers, slow start, and the effect of lost packets, as pure formulas."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.randomness import generator

ENDS = tuple(2.0**power for power in range(-2, 5))
"""Where the parts of a connection end, in expected losses. After the last one its rate is steady."""

SEQUENCES = 4000
"""Drawn sequences of losses, the same ones for all connections."""

_Array = NDArray[np.float64]


def steady_window(loss: float, every: int = 1) -> float:
    """The mean packets per round trip after many losses (Mathis et al., CCR 27(3), 1997, equation 3).

    ``loss`` is the probability that a packet is lost, above 0; ``every`` packets have one acknowledgement.

    >>> round(steady_window(0.01), 2)
    12.25
    """
    return math.sqrt(1.5 / (every * loss))


@lru_cache(maxsize=1024)
def mean_windows(loss: float, every: int, first: float) -> tuple[float, ...]:
    """The mean packets per round trip in each part of a connection, as losses allow, over drawn sequences of losses.

    In each sequence the window follows NewReno (RFC 5681, RFC 6582) as a fluid, without time-outs. Slow start lasts
    until the first loss. A loss is noticed after another window of packets, which cannot reduce the window again. Then
    the window is halved, to at least two whole packets, stays for the round trip of the recovery, and grows by a packet
    in each round trip until the next loss.

    A single sequence, with a loss after each 1 / p packets, is far off in the first parts: a loss in one of the first
    round trips leaves a window so small that it dominates the mean time.

    The first part is sent in slow start alone, from a window of ``first`` packets: its value is infinite. The second
    one also has to make up for what losses cost in the first. ``loss`` and ``every`` are as for :func:`steady_window`.

    >>> [round(window, 1) for window in mean_windows(0.01, 1, 10.0)]  # at most 25, 50, 100, ... packets
    [inf, 22.1, 27.7, 26.5, 21.1, 15.8, 12.7]
    """
    ends = np.array(ENDS) / loss
    trips = _round_trips(ends, loss, every, first)
    trips[0] = _slow_start(ends[0], every, first)
    return math.inf, *(float(window) for window in np.diff(ends) / np.diff(trips))


def _round_trips(ends: _Array, loss: float, every: int, first: float) -> _Array:
    # Each draw deals these quantiles of the packets until a loss to the sequences at random.
    quantiles = -np.log1p(-(np.arange(SEQUENCES) + 0.5) / SEQUENCES) / loss
    draws = generator(0, "losses")
    until_loss = draws.permutation(quantiles)
    window = first + until_loss / every
    sent = until_loss + window
    trips = _slow_start(_before(ends, 0.0, sent), every, first).mean(axis=1)
    while sent.min() < ends[-1]:
        window = np.maximum(np.floor(window / 2.0), 2.0)
        until_loss = draws.permutation(quantiles)
        recovery = np.minimum(until_loss, window)
        trips += (_before(ends, sent, recovery) / window).mean(axis=1)
        sent += recovery
        growth = until_loss - recovery
        trips += _growth(_before(ends, sent, growth), every, window).mean(axis=1)
        sent += growth
        window += _growth(growth, every, window) / every
        trips += (_before(ends, sent, window) / window).mean(axis=1)
        sent += window
    return np.asarray(trips)


def _before(ends: _Array, sent: _Array | float, packets: _Array) -> _Array:
    """Of these packets, which follow those that were sent, the number that is sent before each end."""
    return np.clip(ends[:, None] - sent, 0.0, packets)


def _growth(packets: _Array, every: int, window: _Array) -> _Array:
    return every * (np.sqrt(window**2 + 2.0 * packets / every) - window)


def _slow_start(packets: _Array, every: int, first: float) -> _Array:
    return np.log1p(packets / (every * first)) / math.log1p(1.0 / every)


Handshake = Literal["none", "tcp", "tls", "tls_0rtt"]

ROUND_TRIPS: dict[Handshake, tuple[int, int]] = {"none": (0, 0), "tcp": (1, 1), "tls": (2, 2), "tls_0rtt": (2, 0)}
"""Round trips before the first byte of payload, of a first connection and of a repeated one.

TCP's three-way handshake takes one (RFC 9293, section 3.5), TLS 1.3 another (RFC 8446, section 2). A repeated
connection sends its first data with the ClientHello (0-RTT, RFC 8446, section 2.3), in the SYN (TCP Fast Open, RFC
7413).
"""

TICKET_SECONDS = 604800.0
"""How long a connection can be repeated with 0-RTT: the maximum lifetime of a ticket (RFC 8446, section 4.6.1)."""

LARGEST_WINDOW = 2.0**30
"""Bytes; the largest window that TCP's header can express (RFC 7323, section 2.3)."""

LEAST_TIMEOUT = 1.0
"""Seconds; the least retransmission time-out (RFC 6298, section 2.4)."""

_RECORD, _RECORD_OVERHEAD = 16384, 22
"""Bytes of payload in a full TLS 1.3 record, and of its header (5), content type (1) and authentication tag (16)
(RFC 8446, section 5.2; RFC 5116, section 5.1)."""


class Opening(NamedTuple):
    """The state of a connection when a transfer begins."""

    round_trips: int  # those of its set-up; 0 for an open connection
    rounds: int = 0  # the round-trip times for which its window has already grown in slow start
    sent: float = 0.0  # bytes that it has carried; counted where packets are lost, and until its rate is steady


def payload_share(*, packet_bytes: float, header_bytes: float, framing_bytes: float, encrypted: bool) -> float:
    """The share of a link's capacity that carries payload, which is sent in TLS 1.3 records if ``encrypted``.

    ``packet_bytes`` is the maximum size of an IP packet (MTU), with its IP and TCP headers; the link adds
    ``framing_bytes`` to each. IPv4 with TCP's timestamps over Ethernet, whose frame and gap take 38 bytes:

    >>> round(payload_share(packet_bytes=1500, header_bytes=52, framing_bytes=38, encrypted=False), 6)
    0.941482
    """
    share = (packet_bytes - header_bytes) / (packet_bytes + framing_bytes)
    return share * _RECORD / (_RECORD + _RECORD_OVERHEAD) if encrypted else share


@dataclass(frozen=True)
class Tcp:
    """How a connection begins, grows and loses packets. The default does nothing of it."""

    handshake: Handshake = "none"
    keep_alive: float = 0.0  # seconds for which an idle connection stays open for the next transfer of its two nodes
    segment: float = 1460.0  # bytes of payload in a full packet
    # packets in the first round-trip time of slow start (RFC 6928: 10); None for no slow start
    initial_window: float | None = None
    restart_idle: bool = True  # slow start begins again after an idle time above the time-out (RFC 5681, section 4.1)
    window: float = LARGEST_WINDOW  # the maximum of bytes in flight, which ends slow start
    loss: float = 0.0
    acknowledge_every: int = 1  # packets for one acknowledgement; RFC 5681, section 4.2, allows 2

    def round_trips(self, *, repeated: bool) -> int:
        return ROUND_TRIPS[self.handshake][repeated]

    def timeout(self, latency: float) -> float:
        """The retransmission time-out (seconds) at a constant round-trip time (RFC 6298)."""
        return max(LEAST_TIMEOUT, 2.0 * latency)

    def limit(self, latency: float, opening: Opening) -> float:
        """The maximum rate (bit/s) of a connection in this state over this one-way latency (seconds)."""
        if latency <= 0.0:
            return math.inf
        flying = 8.0 * min(self._grown(opening.rounds), self.window) / (2.0 * latency)
        return min(flying, 8.0 * self.segment * self._mean_window(opening.sent) / (2.0 * latency))

    def steady_rate(self, latency: float) -> float:
        """The mean rate (bit/s of payload) in the presence of losses, long after the first of them.

        >>> round(Tcp(loss=0.01, segment=1460).steady_rate(0.05) / 1e6, 3)  # 12.2 packets in 0.1 s
        1.431
        """
        if self.loss <= 0.0 or latency <= 0.0:
            return math.inf
        return 8.0 * self.segment * steady_window(self.loss, self.acknowledge_every) / (2.0 * latency)

    def grows(self, latency: float, opening: Opening) -> bool:
        """True if slow start will raise its window further. Losses limit the rate, not this window."""
        if self.initial_window is None or latency <= 0.0:
            return False
        return self._grown(opening.rounds) < self.window

    def legs(self, bytes: float, opening: Opening) -> list[tuple[float, Opening]]:
        """The parts of a transfer between the connection's :data:`ENDS`: the bytes of each, and the state at its begin.

        >>> tcp = Tcp(initial_window=10, segment=1000, loss=0.01)
        >>> [bytes for bytes, _ in tcp.legs(120e3, Opening(0))]
        [25000.0, 25000.0, 50000.0, 20000.0]
        """
        legs, left = [], bytes
        for end in self._ends:
            if opening.sent < end < opening.sent + left:
                legs.append((end - opening.sent, opening))
                left -= end - opening.sent
                opening = opening._replace(sent=end)
        return [*legs, (left, opening)]

    def after(self, bytes: float, opening: Opening) -> Opening:
        """The state in which a transfer leaves its connection, without the growth of its window."""
        return opening._replace(sent=min(opening.sent + bytes, self._ends[-1])) if self._ends else opening

    def seconds(self, bytes: float, bits_per_second: float, latency: float, opening: Opening) -> float:
        """The seconds from the first to the last byte of a transfer that has a path of this capacity to itself.

        10, 20 and 40 packets in three round trips of 0.1 s, then the remaining 30 at 20 Mbit/s or the window's rate:

        >>> tcp = Tcp(initial_window=10, segment=1000)
        >>> round(tcp.seconds(100e3, 20e6, 0.05, Opening(0)), 6)
        0.3375
        """
        if bits_per_second <= 0.0:
            return math.inf if bytes > 0.0 else 0.0
        round_trip = 2.0 * latency
        seconds, ticks = 0.0, 0
        for sent, state in self.legs(bytes, opening):
            left = 8.0 * sent
            while left > 0.0:
                now = state._replace(rounds=opening.rounds + ticks)
                rate = min(self.limit(latency, now), bits_per_second)
                until = (ticks + 1) * round_trip - seconds if self.grows(latency, now) else math.inf
                if rate * until >= left:
                    seconds += left / rate
                    break
                left -= rate * until
                ticks += 1
                seconds = ticks * round_trip
        return seconds

    @cached_property
    def _ends(self) -> tuple[float, ...]:
        if self.loss <= 0.0 or self.initial_window is None:
            return ()
        return tuple(self.segment * end / self.loss for end in ENDS)

    def _mean_window(self, sent: float) -> float:
        if self.loss <= 0.0:
            return math.inf
        part = bisect_right(self._ends, sent)
        if part == len(self._ends):
            return steady_window(self.loss, self.acknowledge_every)
        if part == 0 or self.initial_window is None:
            return math.inf
        return mean_windows(self.loss, self.acknowledge_every, self.initial_window)[part]

    def _grown(self, rounds: int) -> float:
        """Bytes. Each acknowledgement adds a packet (RFC 5681, section 3.1)."""
        if self.initial_window is None:
            return math.inf
        growth = 1.0 + 1.0 / self.acknowledge_every
        return self.initial_window * self.segment * growth**rounds
