"""The limit of each connection's window, put in force.

Linux takes a route's ``cwnd lock`` from its cache of TCP metrics, and an address is in that cache only after a
connection with it has ended. So one connection of each pair is made and ended before any is measured.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable, Mapping

from edgefl.emulation.namespaces import inside, set_parameters
from edgefl.emulation.wiring import Pair

_SECONDS = 60.0
_CLOSED = 7
"""TCP_CLOSE, the state of a connection whose end is known to both sides."""
_SAVES_NOTHING = "net.ipv4.tcp_no_metrics_save"


def put_in_force(pairs: Iterable[Pair], pids: Mapping[str, int], addresses: Mapping[str, str]) -> None:
    """Make and end one connection of each pair, in both namespaces at once.

    Args:
        pairs: senders and receivers; each two nodes once.
        pids: a process in the namespace of each node.
        addresses: the address of each node.

    Raises:
        OSError: a connection failed, or took longer than a minute.
    """
    pairs = list(pairs)
    nodes = list(dict.fromkeys(node for pair in pairs for node in pair))
    for node in nodes:
        with inside(pids[node]):
            set_parameters({_SAVES_NOTHING: "0"})
    with contextlib.ExitStack() as stack:
        listening: dict[str, socket.socket] = {}
        open_sockets: list[socket.socket] = []
        selector = stack.enter_context(selectors.DefaultSelector())
        for node in dict.fromkeys(target for _, target in pairs):
            with inside(pids[node]):
                listening[node] = stack.enter_context(socket.create_server((addresses[node], 0), backlog=256))
            listening[node].setblocking(False)
            selector.register(listening[node], selectors.EVENT_READ)
        for source, target in pairs:
            with inside(pids[source]):
                connection = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            connection.setblocking(False)
            connection.connect_ex(listening[target].getsockname())
            selector.register(connection, selectors.EVENT_WRITE)
            open_sockets.append(connection)
        until = time.monotonic() + _SECONDS
        while not (len(open_sockets) == 2 * len(pairs) and all(_ended(each) for each in open_sockets)):
            if time.monotonic() > until:
                raise OSError(f"connections between the nodes did not open and close within {_SECONDS:g} s")
            for key, event in selector.select(0.005):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready in listening.values():
                    accepted = stack.enter_context(ready.accept()[0])
                    accepted.setblocking(False)
                    selector.register(accepted, selectors.EVENT_READ)
                    open_sockets.append(accepted)
                elif event & selectors.EVENT_WRITE:
                    number = ready.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if number:
                        raise OSError(number, "the nodes cannot connect to each other")
                    ready.shutdown(socket.SHUT_WR)
                    selector.unregister(ready)
                else:
                    ready.shutdown(socket.SHUT_WR)
                    selector.unregister(ready)
    for node in nodes:
        with inside(pids[node]):
            set_parameters({_SAVES_NOTHING: "1"})


def _ended(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == bytes([_CLOSED])
