"""A node's process: sends and receives over TCP as the coordinator asks, in a network namespace of its own.

It imports little, so a hundred of them fit into one machine; asyncio gives the moment of the last byte, partial
progress and the options of a socket. On a connection each transfer is a head (number and length) and its content.
Connections are used again; one of an aborted transfer is reset, so that its queued bytes do not hinder the next one.
"""

import asyncio
import json
import mmap
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

PORT = 7447
"""Every node's; each has its namespace for itself."""

CHUNK = 1 << 18
"""Bytes that a socket gets or gives at once."""

START_SECONDS = 20.0
"""For a new process to accept connections."""

_HEAD = struct.Struct("!QQ")
_ROUND_TRIP = (1 << 64) - 1
"""The number of a head that asks for an answer when its bytes have arrived."""


class Node:
    """Sends and receives for one node of the topology."""

    def __init__(self, name: str, control: asyncio.StreamWriter, congestion_control: str = "") -> None:
        self._name, self._control, self._congestion_control = name, control, congestion_control
        self._idle: dict[str, list[socket.socket]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._handed_over: dict[socket.socket, int] = {}  # the kernel has the whole transfer, and may still send it
        self._received: Counter[int] = Counter()
        self._stopped: set[int] = set()
        self._contents: dict[str, memoryview] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._receiving: dict[str, dict[socket.socket, asyncio.Task[None]]] = {}

    def report(self, **facts: Any) -> None:
        self._control.write(json.dumps(facts).encode() + b"\n")

    async def obey(self, orders: asyncio.StreamReader) -> None:
        """Carry out the coordinator's orders until it closes the connection."""
        while line := await orders.readline():
            order = json.loads(line)
            match order.pop("do"):
                case "send":
                    self._sending[order["flow"]] = asyncio.create_task(self._send(**order))
                case "open":
                    self._keep(self._open(**order))
                case "abort":
                    self._abort(order["flow"])
                case "stop":
                    self._report_progress(order["flow"])
                    self._stopped.add(order["flow"])
                case "forget":
                    self._forget(order["peer"])
                case "progress":
                    self._report_progress(order["flow"])

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        listening = socket.create_server(("", PORT), backlog=256)
        listening.setblocking(False)
        while True:
            connection, (peer, _) = await loop.sock_accept(listening)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._receiving.setdefault(peer, {})[connection] = self._keep(self._receive(connection, peer))

    def _keep(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _forget(self, peer: str) -> None:
        """Reset all connections with the address of a process that has ended; what they have queued is thrown away."""
        for connection in self._idle.pop(peer, ()):
            self._end(connection)
        for connection, task in self._receiving.pop(peer, {}).items():
            _reset_when_closed(connection)
            task.cancel()

    def _report_progress(self, flow: int) -> None:
        self.report(progress=flow, bytes=self._received[flow], at=time.monotonic())

    async def _open(self, to: str, warm: int) -> None:
        """Open a connection for later transfers.

        ``warm`` bytes are sent first: a receiver of Linux offers 64 KiB, and twice of what has arrived.
        """
        with suppress(OSError):  # the receiver's process may have ended; a transfer then opens its own
            self._idle.setdefault(to, []).append(await self._connected(to, [warm]))
            self.report(opened=to, of=self._name)

    async def _connected(self, to: str, round_trips: list[int]) -> socket.socket:
        """A new connection, after round trips with these bytes that follow TCP's own handshake."""
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._congestion_control:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control.encode())
        await _reached(connection, to)
        for bytes in round_trips:
            await loop.sock_sendall(connection, _HEAD.pack(_ROUND_TRIP, bytes) + bytearray(bytes))
            await loop.sock_recv(connection, 1)
        return connection

    async def _send(self, flow: int, to: str, bytes: int, content: str, round_trips: int | None = None) -> None:
        """Send the content of a file, from the beginning again where it is shorter than ``bytes``.

        ``round_trips`` are those of a new connection's handshake, after TCP's own; None takes one that is open.
        """
        loop = asyncio.get_running_loop()
        connection: socket.socket | None = None
        try:
            idle = self._idle.get(to)
            if idle and round_trips is None:
                connection = idle.pop()
            else:
                connection = await self._connected(to, [0] * (round_trips or 0))
            self._handed_over.pop(connection, None)
            await loop.sock_sendall(connection, _HEAD.pack(flow, bytes))
            source, sent = self._content(content), 0
            while sent < bytes:
                start = sent % len(source)
                piece = source[start : start + min(CHUNK, bytes - sent)]
                await loop.sock_sendall(connection, piece)
                sent += len(piece)
            self._idle.setdefault(to, []).append(connection)
            self._handed_over[connection] = flow
        except (OSError, asyncio.CancelledError) as error:
            if connection is not None:
                self._end(connection)
            if isinstance(error, OSError):
                self.report(failed=flow, reason=str(error), at=time.monotonic())
        finally:
            self._sending.pop(flow, None)

    def _abort(self, flow: int) -> None:
        """End a transfer now; what its connection has queued is thrown away."""
        task = self._sending.pop(flow, None)
        if task is not None:
            task.cancel()
            return
        for connections in self._idle.values():
            for connection in [each for each in connections if self._handed_over.get(each) == flow]:
                connections.remove(connection)
                self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._handed_over.pop(connection, None)
        _reset_when_closed(connection)
        connection.close()

    def _content(self, path: str) -> memoryview:
        if path not in self._contents:
            with open(path, "rb") as file:
                self._contents = {path: memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))}
        return self._contents[path]

    async def _receive(self, connection: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        space = memoryview(bytearray(CHUNK))
        try:
            with connection, suppress(ConnectionError, EOFError):
                while True:
                    flow, length = _HEAD.unpack(await _exactly(connection, _HEAD.size))
                    if flow == _ROUND_TRIP:
                        await _exactly(connection, length)
                        await loop.sock_sendall(connection, b"\0")
                        continue
                    received = 0
                    while received < length:
                        count = await loop.sock_recv_into(connection, space[: min(CHUNK, length - received)])
                        if not count:
                            raise EOFError
                        received += count
                        self._received[flow] = received
                    if flow not in self._stopped:
                        self.report(arrived=flow, at=time.monotonic())
        finally:
            self._receiving.get(peer, {}).pop(connection, None)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < size:
        more = await loop.sock_recv(connection, size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _reset_when_closed(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _reached(connection: socket.socket, to: str) -> None:
    """Connect to a node, whose process may still be starting; OSError after :data:`START_SECONDS`."""
    loop = asyncio.get_running_loop()
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            await loop.sock_connect(connection, (to, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
        else:
            return
        await asyncio.sleep(0.01)


async def _live(name: str, coordinator: str, congestion_control: str = "", life: str = "0") -> None:
    orders, control = await asyncio.open_unix_connection(coordinator)
    node = Node(name, control, congestion_control)
    listening = asyncio.create_task(node.listen())
    node.report(node=name, life=int(life))
    try:
        await node.obey(orders)
    finally:
        listening.cancel()


def main() -> None:
    """``python -m edgefl.emulation.node NAME COORDINATOR [CONTROL [LIFE]]``: live until the coordinator is gone."""
    with suppress(ConnectionError, BrokenPipeError):
        asyncio.run(_live(*sys.argv[1:]))


if __name__ == "__main__":
    main()
