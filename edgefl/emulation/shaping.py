"""The rules by which links are shaped and windows are chosen, and what sets them.

On the sending side of each link is a hierarchical token bucket (htb). Its one inner class has the link's rate. Each
sender and receiver whose transfers cross the link has a leaf class, which may borrow all of that rate; htb serves
leaves that have packets in turn, so TCP flows share a link like fair queueing. Pure acknowledgements and resets are not
in any class: htb passes them at once, because the simulated network does not count them.

Below each leaf is a token bucket (tbf). It splits segments into packets, and is open except in outages: a class of htb
that is nearly stopped keeps its debt of tokens when its rate is raised again, but tbf begins with a full bucket.
"""

import math
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from edgefl.emulation.nodes import entered
from edgefl.emulation.wiring import WiredLink

_NEW_QDISC, _NEW_CLASS, _ERROR = 36, 40, 2
_REQUEST, _ACKNOWLEDGE = 1, 4
_KIND, _OPTIONS = 1, 2
_HTB_PARAMETERS, _HTB_RATE64, _HTB_CEIL64 = 1, 6, 7
_TBF_PARAMETERS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_ETHERNET = 1
_TICK = 64e-9
"""Seconds of the unit in which bursts are given."""
_WAKE_UP = 0x88B5
"""The protocol of the frames that make a queue send; reserved for experiments, so no program reads them."""


class Rate(NamedTuple):
    """A new rate for a class of htb, or for the tbf below a ``parent``."""

    device: str
    handle: int
    bytes_per_second: int
    burst: int
    packets: int = 0  # the length of a tbf's queue
    parent: int = 0


class TrafficControl:
    """Changes the queues of one network namespace."""

    def __init__(self, namespace: int) -> None:
        with entered(namespace):
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
            self._numbers = {name: number for number, name in socket.if_nameindex()}

    def change(self, changes: Sequence[Rate]) -> None:
        """Make changes, in their order; OSError if the kernel refused one."""
        for change in changes:
            self._netlink.send(self._message(change))
            answer = self._netlink.recv(1 << 16)
            kind, number = struct.unpack_from("=4xH10xi", answer)
            if kind == _ERROR and number != 0:
                raise OSError(-number, f"{change}: {os.strerror(-number)}")

    def wake(self, device: str) -> None:
        """Make a device look at its queue: send a frame that no program reads."""
        with suppress(OSError):
            self._packets.sendto(b"\0", (device, _WAKE_UP, 0, 0, bytes(6)))

    def close(self) -> None:
        self._netlink.close()
        self._packets.close()

    def _message(self, change: Rate) -> bytes:
        if not change.parent:
            kind, name = _NEW_CLASS, b"htb\0"
            rate = _rate(change.bytes_per_second)
            burst = min(round(change.burst / change.bytes_per_second / _TICK), (1 << 32) - 1)
            options = _attribute(_HTB_PARAMETERS, rate + rate + struct.pack("=5I", burst, burst, WIRE_BYTES, 0, 0))
            for attribute in (_HTB_RATE64, _HTB_CEIL64):
                options += _attribute(attribute, struct.pack("=Q", change.bytes_per_second))
        else:
            kind, name = _NEW_QDISC, b"tbf\0"
            parameters = _rate(change.bytes_per_second) + bytes(12) + struct.pack("=3I", change.packets, 0, 0)
            options = _attribute(_TBF_PARAMETERS, parameters)
            options += _attribute(_TBF_RATE64, struct.pack("=Q", change.bytes_per_second))
            options += _attribute(_TBF_BURST, struct.pack("=I", change.burst))
        body = struct.pack("=BxxxiIII", 0, self._numbers[change.device], change.handle, change.parent, 0)
        body += _attribute(_KIND, name) + _attribute(_OPTIONS, options)
        return struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACKNOWLEDGE, 0, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _rate(bytes_per_second: int) -> bytes:
    return struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(bytes_per_second, (1 << 32) - 1))


PACKET_BYTES = 1500
PAYLOAD_BYTES = 1448
"""Payload of the largest packet: without 20 bytes of IPv4, 20 of TCP and 12 of its time stamps."""
ACKNOWLEDGEMENT_BYTES = 52
"""With time stamps; no packet with data has this size."""
RESET_BYTES = 40
"""Size of the answer to a packet for a connection that has ended with its process."""
FRAME_BYTES = 14
"""Ethernet's addition to a packet in a queue."""
WIRE_BYTES = PACKET_BYTES + FRAME_BYTES

UNSHAPED = 12.5e9
"""Bytes per second of a link of infinite capacity."""
BURST_SECONDS = 0.002
"""Tokens that a link saves: as much as a timer may be late without a loss of capacity."""
SLACK_SECONDS = 0.005
"""How long a window may wait in queues without a gap at the bottleneck."""
DELAYED_SLACK_SECONDS = 0.02
"""The same where a process delays packets, which may itself have to wait for a processor."""
LEAST_WINDOW = 4
"""With fewer packets, delayed acknowledgements would stop a connection."""
MOST_SEGMENTS = 40
QUEUE_PACKETS = 20_000
"""Loses nothing."""
ONE_QUEUE_PACKETS = 100
"""The one queue for all (``queue: fifo``)."""
_OPEN_RATE = 125_000_000_000
_FIRST_LEAF = 0x10


def wire_bytes_per_second(bits_per_second: float, *, efficiency: float, dilation: float) -> float:
    """The rate of packets with their headers, so that their payload has the scenario's rate (``bits_per_second``).

    ``efficiency`` is the share of it that carries payload, ``dilation`` the real seconds for one of the scenario.
    A scenario's 8 Mbit/s are 1 MB/s of payload:

    >>> wire_bytes_per_second(8e6, efficiency=1.0, dilation=2.0) / (1514 / 1448)
    500000.0
    """
    if math.isinf(bits_per_second):
        return UNSHAPED
    payload = bits_per_second / 8.0 * efficiency / dilation
    return min(payload * WIRE_BYTES / PAYLOAD_BYTES, UNSHAPED)


def window_packets(bytes_per_second: float, round_trip: float) -> int:
    """Packets in flight that keep a path busy from the first byte, and leave little in queues.

    Both are real time: the highest rate of payload on the path's slowest link, and the seconds of a round trip.

    >>> window_packets(12.5e6, 0.04), window_packets(12.5e6, 0.0), window_packets(1e4, 0.0)
    (518, 44, 4)
    """
    return max(math.ceil(bytes_per_second * (round_trip + _slack(round_trip)) / PAYLOAD_BYTES), LEAST_WINDOW)


def segments(bytes_per_second: float, round_trip: float) -> int:
    """Packets that a sender hands to the kernel as one (GSO), so that the machine has less work.

    TCP may wait until it can send so many, so they are at most a quarter of what a window may wait. Queues split them.

    >>> segments(1e5, 0.0), segments(1.25e7, 0.0), segments(1.25e7, 0.04)
    (1, 10, 40)
    """
    return min(max(int(bytes_per_second * _slack(round_trip) / 4 / PAYLOAD_BYTES), 1), MOST_SEGMENTS)


def _slack(round_trip: float) -> float:
    return DELAYED_SLACK_SECONDS if round_trip > 0.0 else SLACK_SECONDS


def delayed(device: str, seconds: float) -> str:
    """The command that delays what a device sends, where the kernel can (netem)."""
    return f"qdisc add dev {device} root netem delay {round(seconds * 1e6)}us limit {QUEUE_PACKETS}"


class Shaper:
    """The commands that shape one link at its sending device."""

    def __init__(self, link: WiredLink, device: str, addresses: dict[str, str], *, fair: bool = True) -> None:
        self._device = device
        self._packets = QUEUE_PACKETS if fair else ONE_QUEUE_PACKETS
        pairs: Sequence[tuple[str, str] | None] = link.pairs if fair else [None]
        self._matches = [
            "" if pair is None else f"match ip src {addresses[pair[0]]}/32 match ip dst {addresses[pair[1]]}/32"
            for pair in pairs
        ]

    def made(self, bytes_per_second: float) -> list[str]:
        """The commands for a new device; rates include headers, 0 is unshaped until an outage begins."""
        device = self._device
        rate, burst = self._tokens(bytes_per_second or UNSHAPED)
        lines = [
            f"qdisc add dev {device} root handle 2: htb default 0",
            f"class add dev {device} parent 2: classid 2:1 htb"
            f" rate {rate}bps ceil {rate}bps burst {burst} cburst {burst}",
            *(
                f"filter add dev {device} parent 2: protocol ip prio 1 u32 match u16 {size} 0xffff at 2 classid 2:"
                for size in (ACKNOWLEDGEMENT_BYTES, RESET_BYTES)
            ),
        ]
        for leaf, match in enumerate(self._matches, start=_FIRST_LEAF):
            lines += [
                f"class add dev {device} parent 2:1 classid 2:{leaf:x} htb rate 8bit burst 1 ceil 100gbit"
                f" cburst 1mb quantum {WIRE_BYTES}",
                f"qdisc add dev {device} parent 2:{leaf:x} handle {leaf:x}: tbf rate {_OPEN_RATE}bps"
                f" burst {WIRE_BYTES} limit {self._packets}",
                f"qdisc add dev {device} parent {leaf:x}:1 pfifo limit {self._packets}",
                f"filter add dev {device} parent 2: protocol ip prio 2 u32 {match or 'match u32 0 0'}"
                f" classid 2:{leaf:x}",
            ]
        return lines

    def changed(self, bytes_per_second: float) -> Rate:
        """The change to another rate, which is not 0."""
        rate, burst = self._tokens(bytes_per_second)
        return Rate(self._device, 0x20001, rate, burst)

    def valves(self, *, open: bool) -> list[Rate]:
        """The changes that end or begin an outage."""
        # When it is closed, one packet passes at the change, then none for 25 minutes.
        rate = _OPEN_RATE if open else 1
        return [
            Rate(self._device, leaf << 16, rate, WIRE_BYTES, self._packets, 0x20000 + leaf)
            for leaf, _ in enumerate(self._matches, start=_FIRST_LEAF)
        ]

    def _tokens(self, bytes_per_second: float) -> tuple[int, int]:
        return max(round(bytes_per_second), 1), max(WIRE_BYTES, math.ceil(bytes_per_second * BURST_SECONDS))
