"""Changes of running queues, by netlink: faster than a process for each, and each is in force when the call returns.

The messages are those of ``linux/rtnetlink.h`` and ``linux/pkt_sched.h``.
"""

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from edgefl.emulation.nodes import entered

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
    """A new rate for a class of htb."""

    device: str
    handle: int
    bytes_per_second: int
    burst: int
    quantum: int


class Valve(NamedTuple):
    """A new rate for a tbf."""

    device: str
    parent: int
    handle: int
    bytes_per_second: int
    burst: int
    packets: int


class TrafficControl:
    """Changes the queues of one network namespace; a context manager."""

    def __init__(self, namespace: int) -> None:
        self._numbers: dict[str, int] = {}
        with entered(namespace):
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
            self._numbers = {name: number for number, name in socket.if_nameindex()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def change(self, changes: Sequence[Rate | Valve]) -> None:
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

    def _message(self, change: Rate | Valve) -> bytes:
        if isinstance(change, Rate):
            kind, name, parent = _NEW_CLASS, b"htb\0", 0
            rate = _rate(change.bytes_per_second)
            burst = min(round(change.burst / change.bytes_per_second / _TICK), (1 << 32) - 1)
            options = _attribute(_HTB_PARAMETERS, rate + rate + struct.pack("=5I", burst, burst, change.quantum, 0, 0))
            for attribute in (_HTB_RATE64, _HTB_CEIL64):
                options += _attribute(attribute, struct.pack("=Q", change.bytes_per_second))
        else:
            kind, name, parent = _NEW_QDISC, b"tbf\0", change.parent
            parameters = _rate(change.bytes_per_second) + bytes(12) + struct.pack("=3I", change.packets, 0, 0)
            options = _attribute(_TBF_PARAMETERS, parameters)
            options += _attribute(_TBF_RATE64, struct.pack("=Q", change.bytes_per_second))
            options += _attribute(_TBF_BURST, struct.pack("=I", change.burst))
        body = struct.pack("=BxxxiIII", 0, self._numbers[change.device], change.handle, parent, 0)
        body += _attribute(_KIND, name) + _attribute(_OPTIONS, options)
        return struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACKNOWLEDGE, 0, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _rate(bytes_per_second: int) -> bytes:
    return struct.pack("=BBHhHI", 0, _ETHERNET, 0, 0, 0, min(bytes_per_second, (1 << 32) - 1))
