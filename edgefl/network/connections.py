"""The connections between pairs of nodes: which are open, and how far their windows have grown."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgefl.network.flow import Node
from edgefl.network.tcp import TICKET_SECONDS, Opening, Tcp


@dataclass
class Connection:
    """A connection between two nodes, which one transfer after another uses.

    Attributes:
        used: by sending node: when it sent last (seconds), and in which state it was then.
        idle_since: when its last transfer ended, seconds.
    """

    used: dict[Node, tuple[float, Opening]] = field(default_factory=dict)
    idle_since: float = 0.0


class Connections:
    """The idle connections that are kept alive, and the pairs of nodes that can repeat a connection.

    A transfer uses the connection of its two nodes that was used last, in either direction, and opens a new one if none
    is idle. A transfer that is aborted closes its connection.

    Args:
        tcp: how connections begin.

    >>> connections = Connections(Tcp(handshake="tcp", keep_alive=60.0))
    >>> opening, connection = connections.take("server", "client/0", 0.0, latency=0.05)
    >>> connections.give_back("server", "client/0", connection, 1.0, opening)
    >>> [connections.opening("client/0", "server", now, latency=0.05).round_trips for now in (0.5, 61.0, 61.5)]
    [0, 0, 1]
    """

    def __init__(self, tcp: Tcp) -> None:
        self._tcp = tcp
        self._idle: dict[frozenset[Node], list[Connection]] = {}
        self._completed: dict[frozenset[Node], float] = {}

    def opening(self, source: Node, target: Node, now: float, *, latency: float) -> Opening:
        """The state in which a transfer that begins now would find its connection."""
        pair = frozenset((source, target))
        connection = self._newest(pair, now)
        if connection is None:
            last = self._completed.get(pair)
            repeated = last is not None and now - last <= TICKET_SECONDS
            return Opening(self._tcp.round_trips(repeated=repeated))
        sent, state = connection.used.get(source, (now, Opening(0)))
        rests = self._tcp.restart_idle and now - sent > self._tcp.timeout(latency)
        return state._replace(round_trips=0, rounds=0 if rests else state.rounds)

    def take(self, source: Node, target: Node, now: float, *, latency: float) -> tuple[Opening, Connection]:
        """A transfer begins: its connection, and the state in which it finds it."""
        opening = self.opening(source, target, now, latency=latency)
        pair = frozenset((source, target))
        connection = self._newest(pair, now)
        if connection is None:
            self._idle.pop(pair, None)
            return opening, Connection()
        return opening, self._idle[pair].pop()

    def forget(self, node: Node) -> None:
        """The node's process has ended: its connections are closed, and its next handshakes are first ones."""
        for known in (self._idle, self._completed):
            for pair in [pair for pair in known if node in pair]:
                del known[pair]

    def _newest(self, pair: frozenset[Node], now: float) -> Connection | None:
        """The connection that was used last, if it is still open; the others have been idle for longer."""
        idle = self._idle.get(pair)
        return idle[-1] if idle and now - idle[-1].idle_since <= self._tcp.keep_alive else None

    def give_back(self, source: Node, target: Node, connection: Connection, now: float, state: Opening) -> None:
        """A transfer from ``source`` to ``target`` is complete, and leaves its connection in this state."""
        pair = frozenset((source, target))
        self._completed[pair] = now
        if self._tcp.keep_alive > 0.0:
            connection.idle_since = now
            connection.used[source] = (now, state)
            self._idle.setdefault(pair, []).append(connection)
