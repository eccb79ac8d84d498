"""A TCP connection as a fluid: set-up, headers and slow start, as pure formulas."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

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


HEADER_BYTES = 52
"""Bytes of the IP and TCP headers of a packet: IPv4, and TCP with timestamps."""


class Opening(NamedTuple):
    """The state of a connection when a transfer begins."""

    round_trips: int  # those of its set-up; 0 for an open connection
    rounds: int = 0  # the round-trip times for which its window has already grown in slow start


def payload_share(packet_bytes: float, *, encrypted: bool) -> float:
    """The share of a link's capacity that carries payload, which is sent in TLS 1.3 records if ``encrypted``.

    ``packet_bytes`` is the maximum size of an IP packet (MTU), with its headers:

    >>> round(payload_share(1500, encrypted=False), 6)
    0.965333
    """
    share = (packet_bytes - HEADER_BYTES) / packet_bytes
    return share * _RECORD / (_RECORD + _RECORD_OVERHEAD) if encrypted else share


@dataclass(frozen=True)
class Tcp:
    """How a connection begins and grows. The default does nothing of it."""

    handshake: Handshake = "none"
    keep_alive: float = 0.0  # seconds for which an idle connection stays open for the next transfer of its two nodes
    segment: float = 1460.0  # bytes of payload in a full packet
    # packets in the first round-trip time of slow start (RFC 6928: 10); None for no slow start
    initial_window: float | None = None

    def round_trips(self, *, repeated: bool) -> int:
        return ROUND_TRIPS[self.handshake][repeated]

    def timeout(self, latency: float) -> float:
        """The retransmission time-out (seconds) at a constant round-trip time (RFC 6298)."""
        return max(LEAST_TIMEOUT, 2.0 * latency)

    def limit(self, latency: float, opening: Opening) -> float:
        """The maximum rate (bit/s) of a connection in this state over this one-way latency (seconds)."""
        if latency <= 0.0:
            return math.inf
        return 8.0 * min(self._grown(opening.rounds), LARGEST_WINDOW) / (2.0 * latency)

    def grows(self, latency: float, opening: Opening) -> bool:
        """True if slow start will raise its window further."""
        if self.initial_window is None or latency <= 0.0:
            return False
        return self._grown(opening.rounds) < LARGEST_WINDOW

    def seconds(self, bytes: float, bits_per_second: float, latency: float, opening: Opening) -> float:
        """The seconds from the first to the last byte of a transfer that has a path of this capacity to itself.

        10, 20 and 40 packets in three round trips of 0.1 s, then the remaining 30 at 20 Mbit/s or the window's rate:

        >>> tcp = Tcp(initial_window=10, segment=1000)
        >>> round(tcp.seconds(100e3, 20e6, 0.05, Opening(0)), 6)
        0.3375
        """
        if bits_per_second <= 0.0:
            return math.inf if bytes > 0.0 else 0.0
        left, seconds, ticks = 8.0 * bytes, 0.0, 0
        while left > 0.0:
            now = opening._replace(rounds=opening.rounds + ticks)
            rate = min(self.limit(latency, now), bits_per_second)
            until = (ticks + 1) * 2.0 * latency - seconds if self.grows(latency, now) else math.inf
            if rate * until >= left:
                return seconds + left / rate
            left -= rate * until
            ticks += 1
            seconds = ticks * 2.0 * latency
        return seconds

    def _grown(self, rounds: int) -> float:
        """Bytes. Each acknowledgement of a packet adds a packet (RFC 5681, section 3.1)."""
        return math.inf if self.initial_window is None else self.initial_window * self.segment * 2.0**rounds
