"""Transfers between the server, cells and clients: their start, and the network's reports on them."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, Literal

import networkx as nx
import numpy as np
import simpy

from edgefl.errors import WrongAnswer
from edgefl.fleet import Direction, transfer_joules
from edgefl.methods.parts.payload import Part
from edgefl.network.fairness import Outlook, Progress, Shares
from edgefl.network.flow import Alone, Flow, Network
from edgefl.network.flow_network import FlowNetwork
from edgefl.network.topology import GraphLinks, Node
from edgefl.record.events import ABSENT, detail
from edgefl.record.kinds import EventKind
from edgefl.scheduling.bandwidth.base import BandwidthSpec, Transfers, checked_order
from edgefl.simulation.accounts import Accounts
from edgefl.simulation.clock import Clock
from edgefl.simulation.power import Power
from edgefl.simulation.setup import Setup, Testbed
from edgefl.training.faults import blaming


class Allocation:
    """Answers the network's questions (:class:`~edgefl.network.fairness.Allocator`) with a scenario's allocation."""

    def __init__(self, spec: BandwidthSpec, label: str) -> None:
        self._spec, self._label, self.round = spec, label, 0

    def __call__(self, now: float, transfers: Sequence[Progress]) -> Shares:
        asked = _arrays(now, transfers)
        with blaming(self._label, self.round, "bandwidth allocation"):
            order = checked_order(self._spec.order(asked), len(transfers))

        def lasts(rates: Sequence[float]) -> float:
            with blaming(self._label, self.round, "bandwidth allocation"):
                lasting = self._spec.lasts(asked, order, np.array(rates))
                if not lasting > 0.0:  # the network would ask again at this instant, without end
                    raise WrongAnswer(f"it returned {lasting} for how long its order lasts; expected seconds above 0")
                return lasting

        return Shares(order.rank.tolist(), order.weight.tolist(), lasts)


def _arrays(now: float, transfers: Sequence[Progress]) -> Transfers:
    outlooks = [each.outlook for each in transfers]
    return Transfers(
        now,
        bytes=np.array([each.bytes for each in transfers], np.float64),
        left=np.array([each.left for each in transfers], np.float64),
        alone=np.array([each.alone for each in transfers], np.float64),
        up=np.array([each.up for each in outlooks], np.bool_),
        after=np.array([each.after for each in outlooks], np.float64),
        deadline=np.array([each.deadline for each in outlooks], np.float64),
    )


def logged(outlook: Outlook) -> str:
    """An outlook as JSON.

    >>> logged(Outlook(up=True)), logged(Outlook(after=2.5, deadline=9.0))
    ('{"up": true, "after": 0.0}', '{"up": false, "after": 2.5, "deadline": 9.0}')
    """
    facts: dict[str, bool | float] = {"up": outlook.up, "after": outlook.after}
    return json.dumps(facts | ({"deadline": outlook.deadline} if outlook.deadline < math.inf else {}))


@dataclass(eq=False, repr=False)
class Delivery(simpy.Event):
    """One transfer of one or more flows; an event that triggers when it has arrived, or the last attempt broke."""

    env: Clock
    source: Node
    target: Node
    client: int  # whose job it belongs to, of peers the sender; -1 between the server and a cell
    round: int
    dispatch: int  # the number of that job; -1 between the server and a cell
    direction: Direction
    parts: tuple[Part, ...]
    item: str  # its name in the log
    outlook: Outlook | None = None  # what is known about its client's round, for a bandwidth allocation
    receiver: int = ABSENT  # the client that receives it from a peer
    ended: float | None = None  # virtual time at which it was complete, failed or was cancelled, seconds
    failed: bool = False
    flow: Flow | None = None  # the attempt in progress; None before the next one begins
    first: int = ABSENT  # the number of the first attempt's flow, -1 during that attempt
    breaks: int = 0  # how many attempts have broken
    kept: int = 0  # the bytes of those that need not be sent again

    def __post_init__(self) -> None:
        super().__init__(self.env)
        self.started: float = self.env.now  # virtual time of the request, seconds
        # The clients that it occupies, the one of its job first, and whether they receive or send.
        self.sides = [(client, self.way(client)) for client in (self.client, self.receiver) if client >= 0]

    def way(self, client: int) -> Direction:
        """Whether one of its clients receives or sends."""
        return "down" if client == self.receiver else self.direction

    def end(self, *, failed: bool = False) -> None:
        self.ended, self.failed, self.flow = self.env.now, failed, None
        self.succeed(self)

    def on_failure(self, call: Callable[[], None]) -> None:
        """Call a function when the last attempt has broken; no effect if the delivery is over."""
        if self.callbacks is not None:
            self.callbacks.append(lambda _: call() if self.failed else None)


@dataclass
class _Watch:
    flow: Flow
    since: float  # when one of its bytes moved last
    moving: float = math.inf  # when its bytes began to move, or will; infinite while a link is down
    up: bool = False  # whether all links of its path are


class Stalls:
    """Finds the flows of which no byte has moved for some time: before their latency has passed, or over a dead link.

    A time-out expires after all other events of its instant, so a byte that moves again at that instant prevents it.
    """

    def __init__(self, env: Clock, seconds: float, expired: Callable[[Flow], None]) -> None:
        self._env, self._seconds, self._expired = env, seconds, expired
        self._down: set[int] = set()
        self._watches: dict[int, _Watch] = {}

    def watch(self, flow: Flow) -> None:
        watch = _Watch(flow, flow.started)
        # Changes of its links are reported only from its first byte on, when it begins to use them. This alarm is set
        # first, so that a first byte at the very moment at which the time-out expires prevents it.
        self._env.alarm(flow.latency).callbacks.append(lambda _: self._joined(watch))
        self._arm(watch)

    def forget(self, flow: Flow) -> None:
        self._watches.pop(flow.id, None)

    def capacity_changed(self, link: int, bits_per_second: float) -> None:
        if bits_per_second > 0.0:
            self._down.discard(link)
        else:
            self._down.add(link)
        for watch in self._watches.values():
            if link in watch.flow.path:
                self._look(watch)

    def _joined(self, watch: _Watch) -> None:
        if watch.flow.ended is None:
            self._watches[watch.flow.id] = watch
            self._look(watch)

    def _look(self, watch: _Watch) -> None:
        now, up = self._env.now, self._down.isdisjoint(watch.flow.path)
        if up and not watch.up:
            watch.moving = now
        elif watch.up and not up:
            if now > watch.moving:
                watch.since = now
                self._arm(watch)
            watch.moving = math.inf
        watch.up = up

    def _arm(self, watch: _Watch) -> None:
        since = watch.since
        after = max(since + self._seconds - self._env.now, 0.0)
        self._env.alarm(after).callbacks.append(lambda _: self._due(watch, since))

    def _due(self, watch: _Watch, since: float) -> None:
        if watch.flow.ended is None and not watch.up and watch.since == since:
            self._expired(watch.flow)


class Traffic:
    """Sends each transfer in the attempts that it needs and may have; logs and charges what the network reports."""

    def __init__(self, env: Clock, setup: Setup, accounts: Accounts, testbed: Testbed | None) -> None:
        self._env, self._log, self._accounts, self._fleet = env, setup.log, accounts, setup.fleet
        self._cells_average = setup.protocol.averages_in_cells
        self._moved: defaultdict[int, float] = defaultdict(float)
        self._carried: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._allocation = None if setup.bandwidth is None else Allocation(setup.bandwidth, setup.label)
        topology, transport = setup.topology, setup.transport
        if testbed is None:
            network: Network = FlowNetwork(
                env, topology, observer=self, transport=transport, allocator=self._allocation
            )
        else:
            links = GraphLinks(topology) if isinstance(topology, nx.Graph) else topology
            network = testbed.network(links, observer=self, transport=transport)
        self.network = network
        self._timeouts, self._seed = setup.timeouts, setup.seed
        self._breaks: Counter[tuple[str, str, int, str]] = Counter()
        self._stalls: Stalls | None = None
        if setup.timeouts is not None and setup.timeouts.connection is not None:
            self._stalls = Stalls(env, setup.timeouts.connection, lambda flow: self._break(flow, "connection"))
        self.power = Power(env, accounts.charges, self.network, setup.fleet.profile_of, self._radio_drew)

    def send(
        self,
        client: int,
        direction: Direction,
        parts: Sequence[Part],
        round: int,
        dispatch: int,
        *,
        item: Literal["prefetch", "broadcast"] | None = None,
        outlook: Outlook | None = None,
    ) -> Delivery:
        """Start a transfer of ``parts`` to or from the client for its job ``dispatch``; ``item`` is its name."""
        source, target = self._ends(client, direction)
        facts = (client, round, dispatch, direction, tuple(parts), item or direction, outlook)
        return self._begun(Delivery(self._env, source, target, *facts))

    def relay(self, source: Node, target: Node, parts: Sequence[Part], round: int) -> Delivery:
        """Start one transfer between the server and a cell."""
        direction: Direction = "down" if source == "server" else "up"
        return self._begun(Delivery(self._env, source, target, ABSENT, round, ABSENT, direction, tuple(parts), "relay"))

    def exchange(self, sender: int, receiver: int, parts: Sequence[Part], round: int, dispatch: int) -> Delivery:
        """Start one transfer from a client to another one, for the sender's job number ``dispatch``."""
        ends, place = (f"client/{sender}", f"client/{receiver}"), (sender, round, dispatch)
        return self._begun(Delivery(self._env, *ends, *place, "up", tuple(parts), "up", receiver=receiver))

    def cancel(self, delivery: Delivery) -> None:
        if delivery.ended is None:
            delivery.ended, flow = self._env.now, delivery.flow
            delivery.flow = None
            if flow is not None:
                self.network.cancel(flow)

    def gate(self, client: int) -> Node:
        """The client's peer: the server or, where cells average, its cell, the last node on the path to it."""
        if not self._cells_average:
            return "server"
        return self.network.route("server", f"client/{client}").nodes[-2]

    def foreseen(self, client: int, direction: Direction) -> Alone:
        """The duration of transfers alone on their path, at the present capacities."""
        return self.network.alone(*self._ends(client, direction))

    def carried(self, client: int, dispatch: int) -> float:
        """Bytes that were moved for a job of the client; called once, when the job's fate is known."""
        return self._carried.pop((client, dispatch), 0.0)

    # Calls from the network (FlowObserver)

    def flow_started(self, flow: Flow) -> None:
        delivery: Delivery = flow.tag
        facts = f'"path": {_listed(flow.nodes)}, "parts": {_left(delivery.parts, delivery.kept)}'
        if delivery.breaks:
            facts += f', "first": {delivery.first}'
            self._accounts.totals.charge("transfers_retries", 1)
        if flow.outlook is not None:
            facts += f', "outlook": {logged(flow.outlook)}'
        if flow.multicast is not None:
            facts += f', "multicast": {flow.multicast}'
        if flow.opening is not None:
            facts += f', "connection": {json.dumps({"setup": flow.setup, "rounds": flow.opening.rounds})}'
        self._write("transfer_start", flow, flow.bytes, value=flow.latency, detail="{" + facts + "}")
        for client, _ in delivery.sides:
            self.power.flow_started(client, delivery.round, flow)

    def flow_ended(self, flow: Flow) -> None:
        delivery: Delivery = flow.tag
        self._transferred("transfer_end", flow)
        delivery.end()

    def flow_cancelled(self, flow: Flow) -> None:
        self._transferred("transfer_drop", flow)

    def capacity_changed(self, link: int, source: Node, target: Node, bits_per_second: float) -> None:
        self._log.write(self._env.now, "capacity", source=str(source), target=str(target), value=bits_per_second)
        if self._stalls is not None:
            self._stalls.capacity_changed(link, bits_per_second)
        self.power.capacity_changed(link)

    def _transferred(self, kind: EventKind, flow: Flow) -> None:
        delivery: Delivery = flow.tag
        accounts, seconds = self._accounts, self._env.now - flow.started
        delivered = float(whole_bytes(flow))
        if self._stalls is not None:
            self._stalls.forget(flow)
        if delivery.client < 0:
            self._write(kind, flow, delivered, seconds=seconds)
            accounts.totals.charge("bytes_backhaul", delivered)
            return
        for client, way in delivery.sides:
            active = self.power.active_seconds(client, flow)
            joules = transfer_joules(self._fleet.profile_of(client), way, active, delivered)
            joules = self.power.given(client, joules, flow)
            if client == delivery.client:
                self._write(kind, flow, delivered, seconds=seconds, joules=joules)
            else:
                self._write("reception", flow, delivered, client=client, item=way, seconds=seconds, joules=joules)
            accounts.totals.charge(f"bytes_{way}", delivered)
            accounts.drew(client, joules)
            self.power.flow_over(client, delivery.round, flow)
            self._moved[client] += delivered
            accounts.totals.raise_to("client_bytes", self._moved[client])
            self._carried[delivery.client, delivery.dispatch] += delivered
        accounts.check()

    def _begun(self, delivery: Delivery) -> Delivery:
        if self._allocation is not None:
            self._allocation.round = delivery.round
        self._attempt(delivery)
        return delivery

    def _attempt(self, delivery: Delivery) -> None:
        if delivery.ended is not None:
            return
        # Other clients may receive the same parts; an update is unique.
        payload = delivery.parts if delivery.direction == "down" else None
        size, outlook = _sizes(delivery.parts)[0] - delivery.kept, delivery.outlook
        flow = self.network.transfer(
            delivery.source, delivery.target, size, tag=delivery, payload=payload, outlook=outlook
        )
        delivery.flow = flow
        if self._timeouts is not None and self._timeouts.transfer is not None:
            self._env.alarm(self._timeouts.transfer).callbacks.append(lambda _: self._break(flow, "transfer"))
        if self._stalls is not None:
            self._stalls.watch(flow)

    def _break(self, flow: Flow, cause: Literal["connection", "transfer"]) -> None:
        """A time-out has expired: abort the attempt; another one follows, or the transfer has failed."""
        if flow.ended is not None:
            return
        delivery: Delivery = flow.tag
        timeouts, totals = self._timeouts, self._accounts.totals
        assert timeouts is not None
        delivery.flow, client, wait = None, delivery.client, None
        self.network.cancel(flow)
        delivered = delivery.kept + whole_bytes(flow)
        delivery.kept = timeouts.kept(delivered)
        lost = (delivered - delivery.kept) * (1 if delivery.receiver < 0 else 2)  # which will be sent again
        delivery.breaks += 1
        if delivery.breaks == 1:
            delivery.first = flow.id
        if delivery.breaks <= timeouts.retries:
            place = (str(delivery.source), str(delivery.target), delivery.round, delivery.item)
            self._breaks[place] += 1
            wait = timeouts.wait(delivery.breaks, self._seed, *place, self._breaks[place])
        facts = detail(cause=cause, kept=delivery.kept, again=wait is not None)
        self._write("transfer_break", flow, lost, seconds=wait or 0.0, value=delivery.breaks, detail=facts)
        totals.charge("transfers_breaks", 1)
        totals.charge("transfers_failed", wait is None)
        if client >= 0:
            totals.charge("bytes_broken", lost)
            self._carried[client, delivery.dispatch] -= lost
        if wait is None:
            delivery.end(failed=True)
        else:
            self._env.timeout(wait).callbacks.append(lambda _: self._attempt(delivery))

    def _write(self, kind: EventKind, flow: Flow, bytes: float, **columns: Any) -> None:
        delivery: Delivery = flow.tag
        columns |= {"flow": flow.id, "source": flow.nodes[0], "target": flow.nodes[-1]}
        place = delivery.round, columns.pop("client", delivery.client), delivery.dispatch
        self._log.write(self._env.now, kind, *place, bytes=bytes, **{"item": delivery.item, **columns})

    def _ends(self, client: int, direction: Direction) -> tuple[Node, Node]:
        own = f"client/{client}"
        gate = self.gate(client) if self._cells_average else "server"
        return (gate, own) if direction == "down" else (own, gate)

    def _radio_drew(self, client: int, round: int, what: str, seconds: float, joules: float) -> None:
        joules = self.power.given(client, joules)
        self._log.write(self._env.now, "radio", round, client, item=what, seconds=seconds, joules=joules)
        self._accounts.drew(client, joules)
        self._accounts.check()


# Every transfer's row contains its path and parts, and those of one round differ little.


@lru_cache(maxsize=4096)
def _listed(names: tuple[str, ...]) -> str:
    return f"[{', '.join(map(encode_basestring_ascii, names))}]"


@lru_cache(maxsize=64)
def _sizes(parts: tuple[Part, ...]) -> tuple[int, str]:
    return sum(part.bytes for part in parts), json.dumps({part.name: part.bytes for part in parts})


def _left(parts: tuple[Part, ...], kept: int) -> str:
    """The bytes of each part without the first ``kept`` ones of all parts together."""
    if not kept:
        return _sizes(parts)[1]
    left = {}
    for part in parts:
        left[part.name] = part.bytes - min(kept, part.bytes)
        kept -= part.bytes - left[part.name]
    return json.dumps(left)


def whole_bytes(flow: Flow) -> int:
    """The bytes that a flow has delivered; parts are whole bytes, and of an aborted flow only whole bytes count."""
    return int(flow.delivered + 1e-6)
