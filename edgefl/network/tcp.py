"""A TCP connection as a fluid: set-up, headers, slow start, and the effect of lost packets, as pure formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from edgefl.network.congestion_avoidance import CongestionAvoidance

Handshake = Literal["none", "tcp", "tls", "tls_0rtt"]
LossFormula = Literal["mathis", "padhye"]

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
    """The state of a connection, in which a transfer finds it.

    Attributes:
        round_trips: those of its set-up; 0 for an open connection.
        rounds: the round-trip times for which its window has already grown in slow start.
        window: packets in flight after its last loss; infinite if it has lost none.
        left: bytes until it is expected to lose the next packet; infinite if it has lost none, or if its rate has
            become steady.
    """

    round_trips: int
    rounds: int = 0
    window: float = math.inf
    left: float = math.inf


def payload_share(*, packet_bytes: float, header_bytes: float, framing_bytes: float, encrypted: bool) -> float:
    """The share of a link's capacity that carries payload.

    Args:
        packet_bytes: the maximum size of an IP packet (MTU).
        header_bytes: bytes of the IP and TCP headers in each packet.
        framing_bytes: bytes that the link adds to each packet.
        encrypted: whether the payload is sent in TLS 1.3 records.

    IPv4 with TCP's timestamps over Ethernet, whose frame and gap take 38 bytes:

    >>> round(payload_share(packet_bytes=1500, header_bytes=52, framing_bytes=38, encrypted=False), 6)
    0.941482
    """
    share = (packet_bytes - header_bytes) / (packet_bytes + framing_bytes)
    return share * _RECORD / (_RECORD + _RECORD_OVERHEAD) if encrypted else share


@dataclass(frozen=True)
class Tcp:
    """How a connection begins, grows and loses packets. The default does nothing of it.

    Attributes:
        handshake: what is exchanged before the first byte of payload; see :data:`ROUND_TRIPS`.
        keep_alive: seconds for which an idle connection stays open for the next transfer between its two nodes.
        segment: bytes of payload in a full packet.
        initial_window: packets in the first round-trip time of slow start (RFC 6928: 10); None for no slow start.
        restart_idle: whether slow start begins again after an idle time above the retransmission time-out (RFC 5681,
            section 4.1).
        window: the maximum of bytes in flight, which ends slow start.
        loss: the probability that a packet is lost.
        loss_formula: ``mathis`` (Mathis et al., CCR 27(3), 1997, equation 3) or ``padhye``, which adds time-outs
            (Padhye et al., SIGCOMM 1998, equation 30).
        acknowledge_every: packets for one acknowledgement; RFC 5681, section 4.2, allows 2.
    """

    handshake: Handshake = "none"
    keep_alive: float = 0.0
    segment: float = 1460.0
    initial_window: float | None = None
    restart_idle: bool = True
    window: float = LARGEST_WINDOW
    loss: float = 0.0
    loss_formula: LossFormula = "mathis"
    acknowledge_every: int = 1

    def round_trips(self, *, repeated: bool) -> int:
        """Those of a new connection's set-up."""
        return ROUND_TRIPS[self.handshake][repeated]

    def timeout(self, latency: float) -> float:
        """The retransmission time-out (seconds) at a constant round-trip time (RFC 6298)."""
        return max(LEAST_TIMEOUT, 2.0 * latency)

    def limit(self, latency: float, opening: Opening) -> float:
        """The maximum rate (bit/s) of a connection in this state over this one-way latency (seconds)."""
        if latency <= 0.0:
            return math.inf
        flying = 8.0 * min(self._grown(opening.rounds), self.window) / (2.0 * latency)
        return min(flying, self._lossy_rate(latency, opening.window))

    def steady_rate(self, latency: float) -> float:
        """The mean rate (bit/s of payload) in the presence of losses, long after the first of them.

        >>> round(Tcp(loss=0.01, segment=1460).steady_rate(0.05) / 1e6, 3)  # 12.2 packets in 0.1 s
        1.431
        """
        loss, every, round_trip = self.loss, self.acknowledge_every, 2.0 * latency
        if loss <= 0.0 or round_trip <= 0.0:
            return math.inf
        seconds_per_packet = round_trip * math.sqrt(2.0 * every * loss / 3.0)
        if self.loss_formula == "padhye":
            again = min(1.0, 3.0 * math.sqrt(3.0 * every * loss / 8.0))
            seconds_per_packet += self.timeout(latency) * again * loss * (1.0 + 32.0 * loss**2)
        return 8.0 * self.segment / seconds_per_packet

    def grows(self, latency: float, opening: Opening) -> bool:
        """Whether slow start will raise its window further. Losses limit the rate, not this window."""
        if self.initial_window is None or latency <= 0.0:
            return False
        return self._grown(opening.rounds) < self.window

    def legs(self, bytes: float, opening: Opening) -> list[tuple[float, Opening]]:
        """The parts of a transfer between its expected losses: the bytes of each, and the state in which it is sent.

        Slow start ends with the expected first loss. Then a packet is lost after each 1 / p packets, until the rate is
        steady. The last state has the bytes that are left until the loss after the transfer.

        >>> tcp = Tcp(initial_window=10, segment=1000, loss=0.01)
        >>> [(round(bytes), round(state.window, 1)) for bytes, state in tcp.legs(400e3, Opening(0))]
        [(98223, inf), (100000, 30.6), (100000, 16.9), (100000, 11.0), (1777, 9.0)]
        """
        avoidance = self._avoidance
        if avoidance is None or self.initial_window is None or bytes <= 0.0:
            return [(bytes, opening)]
        legs = []
        state, left = opening, bytes
        if state.window == math.inf:
            state = state._replace(left=self.segment * avoidance.before_first_loss(bytes / self.segment))
        while state.left < left:
            legs.append((state.left, state))
            left -= state.left
            if state.window == math.inf:
                first, most = self._grown(state.rounds) / self.segment, self.window / self.segment
                window = avoidance.after_first_loss(bytes / self.segment, first, most)
            else:
                window = avoidance.after_loss(state.window)
            until_loss = math.inf if window == avoidance.steady else self.segment / self.loss
            state = state._replace(window=window, left=until_loss)
        legs.append((left, state._replace(left=math.inf if state.window == math.inf else state.left - left)))
        return legs

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
    def _avoidance(self) -> CongestionAvoidance | None:
        return CongestionAvoidance(self.loss, self.acknowledge_every) if self.loss > 0.0 else None

    def _lossy_rate(self, latency: float, window: float) -> float:
        """The mean rate (bit/s) until the next loss, given the packets in flight after the last one."""
        if self._avoidance is None:
            return math.inf
        if self.initial_window is None or window == self._avoidance.steady:
            return self.steady_rate(latency)
        if window == math.inf:
            return math.inf
        return 8.0 * self.segment / self.loss / (self._avoidance.round_trips(window) * 2.0 * latency)

    def _grown(self, rounds: int) -> float:
        """The congestion window (bytes) after this many round-trip times of slow start.

        Each acknowledgement adds a packet (RFC 5681, section 3.1), so a round-trip time multiplies the window by
        ``1 + 1 / acknowledge_every``.
        """
        if self.initial_window is None:
            return math.inf
        growth = 1.0 + 1.0 / self.acknowledge_every
        return self.initial_window * self.segment * growth**rounds
