"""A process that takes packets out of TUN devices and puts them back after a delay, for kernels without netem.

Each device is in a sender's namespace, and what comes back from it is routed to the first link. Segments of TCP are
read and written whole (GSO), so that one system call carries several packets.
"""

import fcntl
import json
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

from edgefl.emulation.nodes import inside

_SET_DEVICE, _SET_OFFLOAD, _SET_HEADER = 0x400454CA, 0x400454D0, 0x400454D8
"""TUNSETIFF, TUNSETOFFLOAD and TUNSETVNETHDRSZ of Linux."""
_TUN, _NO_INFORMATION, _HEADERS = 0x0001, 0x1000, 0x4000
_CHECKSUMS, _TSO4 = 0x01, 0x02
HEADER_BYTES = 10
"""Size of the header in front of each packet that describes its segments."""
_LARGEST = 1 << 16
_AT_ONCE = 64
"""Packets of one device before others have their turn."""
_GRAIN = 0.0001
"""Packets that are due within this time, seconds, leave together: it saves system calls."""


def open_device(pid: int, device: str) -> int:
    """Make a TUN device in the namespace of a process, and return its descriptor."""
    with inside(pid):
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", device.encode(), _TUN | _NO_INFORMATION | _HEADERS)
        fcntl.ioctl(descriptor, _SET_DEVICE, request)
        fcntl.ioctl(descriptor, _SET_HEADER, struct.pack("i", HEADER_BYTES))
        fcntl.ioctl(descriptor, _SET_OFFLOAD, _CHECKSUMS | _TSO4)
    return descriptor


class DelayLine:
    """Keeps packets of TUN devices, given by descriptor, for their delay in seconds."""

    def __init__(self, delays: list[tuple[int, float]]) -> None:
        self._poll = select.epoll()
        self._kept: dict[float, deque[tuple[float, int, bytes]]] = {}
        self._delays = dict(delays)
        for device, seconds in delays:
            self._kept.setdefault(seconds, deque())
            self._poll.register(device, select.EPOLLIN)

    def run(self, stop: int) -> None:
        self._poll.register(stop, select.EPOLLIN)
        lines = list(self._kept.values())
        waiting = [self._poll.fileno()]
        clock, read, write = time.monotonic, os.read, os.write
        while True:
            now = clock()
            due = min((line[0][0] for line in lines if line), default=now + 1.0)
            if due > now:
                # The clock of epoll has only milliseconds, that of select microseconds.
                select.select(waiting, (), (), due - now)
            for device, _ in self._poll.poll(0):
                if device == stop:
                    return
                seconds = self._delays[device]
                line = self._kept[seconds]
                with suppress(BlockingIOError):
                    for _ in range(_AT_ONCE):
                        packet = read(device, _LARGEST)
                        line.append((clock() + seconds, device, packet))
            limit = clock() + _GRAIN
            for line in lines:
                while line and line[0][0] <= limit:
                    _, device, packet = line.popleft()
                    # The kernel refuses what is no IP packet; nothing is lost with it.
                    with suppress(OSError):
                        write(device, packet)


def main() -> None:
    """``python -m edgefl.emulation.delay_line``: carry packets until the standard input is closed.

    The first line has process, device and seconds of each delay, as JSON. ``ready`` is printed when all exist.
    """
    delays = json.loads(sys.stdin.readline())
    with suppress(OSError):
        os.nice(-10)
    line = DelayLine([(open_device(pid, device), seconds) for pid, device, seconds in delays])
    print("ready", flush=True)
    line.run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
