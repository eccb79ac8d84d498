"""What TCP has sent of a node's transfers beyond what arrived in them, from the kernel's counters of its sockets."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from typing import NamedTuple

_SENT = struct.Struct("=QQ")
_PLACE = 200
"""Where ``tcpi_bytes_sent`` and ``tcpi_bytes_retrans`` are in the kernel's ``struct tcp_info`` (Linux 4.19)."""


class Sent(NamedTuple):
    """Bytes of a connection's stream that have been sent: for the first time, and again."""

    once: int
    again: int


def sent_on(connection: socket.socket) -> Sent:
    """What a connection has sent so far; nothing on a kernel that does not count it."""
    found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _PLACE + _SENT.size)
    if len(found) < _PLACE + _SENT.size:
        return Sent(0, 0)
    sent, again = _SENT.unpack_from(found, _PLACE)
    return Sent(sent - again, again)


class SentBytes:
    """The bytes that a node's connections sent again, and those of its aborted transfers, by the receiver's address."""

    def __init__(self) -> None:
        self._again: Counter[str] = Counter()
        self._aborted: Counter[str] = Counter()
        self._open: dict[socket.socket, str] = {}
        self._begun: dict[socket.socket, tuple[int, int]] = {}
        self._ended: dict[int, tuple[str, int]] = {}

    def opened(self, connection: socket.socket, to: str) -> None:
        """A connection to a receiver is open."""
        self._open[connection] = to

    def begun(self, connection: socket.socket, flow: int) -> None:
        """A transfer begins on a connection."""
        self._begun[connection] = flow, sent_on(connection).once

    def closing(self, connection: socket.socket) -> None:
        """A connection is about to be closed."""
        to, sent = self._open.pop(connection), sent_on(connection)
        self._again[to] += sent.again
        if connection in self._begun:
            flow, before = self._begun.pop(connection)
            self._ended[flow] = to, sent.once - before

    def aborted(self, flow: int) -> None:
        """A transfer was aborted; its connection, if it had one, has been closed."""
        to, sent = self._ended.pop(flow, ("", 0))
        self._aborted[to] += sent

    def by_receiver(self) -> dict[str, tuple[int, int]]:
        """The bytes that were sent again, and those of aborted transfers."""
        again = Counter(self._again)
        for connection, to in self._open.items():
            again[to] += sent_on(connection).again
        return {to: (again[to], self._aborted[to]) for to in again}
