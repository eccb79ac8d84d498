"""A process that carries packets between TUN devices of two namespaces, each after the latency of its link.

For kernels without netem. Reads and writes segments of TCP as large as their sender made them (GSO), so that one
system call carries several packets.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from edgefl.emulation.namespaces import inside

_SET_DEVICE, _SET_OFFLOAD, _SET_HEADER = 0x400454CA, 0x400454D0, 0x400454D8
"""TUNSETIFF, TUNSETOFFLOAD and TUNSETVNETHDRSZ of Linux."""
_TUN, _NO_INFORMATION, _HEADERS = 0x0001, 0x1000, 0x4000
_CHECKSUMS, _TSO4 = 0x01, 0x02
HEADER_BYTES = 10
"""Size of the header in front of each packet that describes its segments."""
_LARGEST = 1 << 16
_AT_ONCE = 64
"""Packets that are read from one device before others have their turn."""
_GRAIN = 0.0001
"""Packets that are due within this time, seconds, leave together: it saves system calls."""


class End(NamedTuple):
    """One end of a delayed pair: a device to be made in the namespace of a process.

    Attributes:
        pid: the process.
        device: the name of the device.
        seconds: the delay of the packets that this end sends.
    """

    pid: int
    device: str
    seconds: float


def open_device(end: End) -> int:
    """Make the TUN device of an end, and return its descriptor."""
    with inside(end.pid):
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", end.device.encode(), _TUN | _NO_INFORMATION | _HEADERS)
        fcntl.ioctl(descriptor, _SET_DEVICE, request)
        fcntl.ioctl(descriptor, _SET_HEADER, struct.pack("i", HEADER_BYTES))
        fcntl.ioctl(descriptor, _SET_OFFLOAD, _CHECKSUMS | _TSO4)
    return descriptor


class DelayLine:
    """Moves packets between pairs of devices.

    Args:
        pairs: the two descriptors of each pair, with the delay of the packets that are read from it, seconds.

    Attributes:
        carried: packets that have been delivered.
    """

    def __init__(self, pairs: list[tuple[tuple[int, float], tuple[int, float]]]) -> None:
        self.carried = 0
        self._poll = select.epoll()
        self._under_way: dict[float, deque[tuple[float, int, bytes]]] = {}
        self._out: dict[int, tuple[int, float, deque[tuple[float, int, bytes]]]] = {}
        for (one, one_seconds), (other, other_seconds) in pairs:
            for source, target, seconds in ((one, other, one_seconds), (other, one, other_seconds)):
                line = self._under_way.setdefault(seconds, deque())
                self._out[source] = (target, seconds, line)
                self._poll.register(source, select.EPOLLIN)

    def run(self, *, until: float = float("inf"), stop: int | None = None) -> None:
        """Carry packets until a time of the monotonic clock, or until a descriptor can be read."""
        if stop is not None:
            self._poll.register(stop, select.EPOLLIN)
        lines = list(self._under_way.values())
        waiting = [self._poll.fileno()]
        clock, read, write = time.monotonic, os.read, os.write
        while True:
            now = clock()
            if now >= until:
                return
            due = min((line[0][0] for line in lines if line), default=now + 1.0)
            if due > now:
                # The clock of epoll has only milliseconds, that of select microseconds.
                select.select(waiting, (), (), min(due, until) - now)
            for source, _ in self._poll.poll(0):
                if source == stop:
                    return
                target, seconds, line = self._out[source]
                with suppress(BlockingIOError):
                    for _ in range(_AT_ONCE):
                        packet = read(source, _LARGEST)
                        line.append((clock() + seconds, target, packet))
            limit = clock() + _GRAIN
            for line in lines:
                while line and line[0][0] <= limit:
                    _, target, packet = line.popleft()
                    # A frame that only makes a queue send is no IP packet: the kernel refuses it, and nothing is lost.
                    with suppress(OSError):
                        write(target, packet)
                        self.carried += 1


def main() -> None:
    """``python -m edgefl.emulation.delay_line``: carry packets until the standard input is closed.

    The first line of the input has the pairs of ends, as JSON. ``ready`` is printed when all devices exist.
    """
    pairs = [[End(*end) for end in pair] for pair in json.loads(sys.stdin.readline())]
    with suppress(OSError):
        os.nice(-10)
    opened = [[(open_device(end), end.seconds) for end in pair] for pair in pairs]
    line = DelayLine([(one, other) for one, other in opened])
    print("ready", flush=True)
    line.run(stop=sys.stdin.fileno())


if __name__ == "__main__":
    main()
