"""The connections between pairs of nodes: which are open, and how far their windows have grown."""

from dataclasses import dataclass, field

import simpy

from edgefl.network.flow import Agenda, Flow
from edgefl.network.sharing import Sharing
from edgefl.network.tcp import TICKET_SECONDS, Opening, Tcp
from edgefl.network.topology import Node
from edgefl.units import at_most


@dataclass
class Connection:
    """A connection between two nodes, which one transfer after another uses."""

    # by sending node: when it sent last (seconds), and in which state it was then
    used: dict[Node, tuple[float, Opening]] = field(default_factory=dict)
    idle_since: float = 0.0  # when its last transfer ended, seconds


class Connections:
    """The idle connections that are kept alive, and the pairs of nodes that can repeat a connection.

    A transfer uses the connection of its two nodes that was used last, in either direction, and opens a new one if none
    is idle. A transfer that is aborted closes its connection.

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
            repeated = last is not None and at_most(now, last + TICKET_SECONDS)
            return Opening(self._tcp.round_trips(repeated=repeated))
        sent, state = connection.used.get(source, (now, Opening(0)))
        # After an idle time above the time-out, slow start begins again (RFC 5681, section 4.1).
        rests = not at_most(now, sent + self._tcp.timeout(latency))
        return Opening(0, 0 if rests else state.rounds)

    def take(self, source: Node, target: Node, now: float, *, latency: float) -> tuple[Opening, Connection]:
        """The connection of a transfer that begins, and its state."""
        opening = self.opening(source, target, now, latency=latency)
        pair = frozenset((source, target))
        if self._newest(pair, now) is None:
            self._idle[pair] = [Connection()]
        return opening, self._idle[pair].pop()

    def forget(self, node: Node) -> None:
        """The node's process has ended: its connections are closed, and its next handshakes are first ones."""
        for known in (self._idle, self._completed):
            for pair in [pair for pair in known if node in pair]:
                del known[pair]

    def _newest(self, pair: frozenset[Node], now: float) -> Connection | None:
        idle = self._idle.get(pair)
        return idle[-1] if idle and at_most(now, idle[-1].idle_since + self._tcp.keep_alive) else None

    def give_back(self, source: Node, target: Node, connection: Connection, now: float, state: Opening) -> None:
        """A transfer from ``source`` to ``target`` is complete, and leaves its connection in this state."""
        pair = frozenset((source, target))
        self._completed[pair] = now
        if self._tcp.keep_alive > 0.0:
            connection.idle_since = now
            connection.used[source] = (now, state)
            self._idle.setdefault(pair, []).append(connection)


@dataclass
class _Sender:
    """One transfer's use of its connection: ``ticks`` round-trip times since ``joined``."""

    connection: Connection
    state: Opening
    latency: float
    joined: float = 0.0
    ticks: int = 0


class TcpFlows(Connections):
    """Opens connections for transfers, and changes the limits of their rates over time."""

    def __init__(self, env: simpy.Environment, tcp: Tcp, agenda: Agenda, sharing: Sharing) -> None:
        super().__init__(tcp)
        self._env, self._agenda, self._sharing = env, agenda, sharing
        self._senders: dict[int, _Sender] = {}

    def request(self, flow: Flow, latency: float) -> None:
        """A transfer begins over this one-way latency (seconds); adds its set-up to ``flow.latency``."""
        opening, connection = self.take(flow.source, flow.target, flow.started, latency=latency)
        self._senders[flow.id] = _Sender(connection, opening, latency)
        flow.opening = opening
        flow.setup = 2.0 * latency * opening.round_trips
        flow.latency += flow.setup

    def joined(self, flow: Flow) -> float:
        """The transfer's first byte is sent; returns the limit of its rate (bit/s)."""
        sender = self._senders[flow.id]
        sender.joined = self._env.now
        self._await_growth(flow.id, sender)
        return self._tcp.limit(sender.latency, sender.state)

    def completed(self, flow: Flow) -> None:
        sender = self._senders.pop(flow.id)
        self.give_back(flow.source, flow.target, sender.connection, self._env.now, sender.state)

    def cancelled(self, flow: Flow) -> None:
        del self._senders[flow.id]

    def _await_growth(self, flow: int, sender: _Sender) -> None:
        if self._tcp.grows(sender.latency, sender.state):
            sender.ticks += 1
            # A multiple of the round-trip time, so that rounding does not add up.
            self._agenda.at(sender.joined + sender.ticks * 2.0 * sender.latency, self._grow, (flow, sender))

    def _grow(self, what: tuple[int, _Sender]) -> None:
        flow, sender = what
        if self._senders.get(flow) is not sender:
            return  # the transfer has ended
        sender.state = sender.state._replace(rounds=sender.state.rounds + 1)
        self._sharing.set_limit(flow, self._tcp.limit(sender.latency, sender.state), self._env.now)
        self._await_growth(flow, sender)
