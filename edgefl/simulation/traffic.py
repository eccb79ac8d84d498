"""Transfers between the server, cells and clients: their start, and the network's reports on them."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import networkx as nx
import numpy as np

from edgefl.errors import WrongAnswer
from edgefl.fleet import Direction, transfer_joules
from edgefl.methods.parts.payload import Part
from edgefl.network.fairness import Outlook, Progress, Shares
from edgefl.network.flow import Alone, Flow, Network
from edgefl.network.flow_network import FlowNetwork
from edgefl.network.tcp import Opening
from edgefl.network.topology import GraphLinks, Node
from edgefl.record.events import ABSENT, detail
from edgefl.record.kinds import EventKind
from edgefl.scheduling.bandwidth.base import BandwidthSpec, Transfers, checked_order
from edgefl.simulation.accounts import Accounts
from edgefl.simulation.clock import Clock
from edgefl.simulation.delivery import Attempts, Cause, Delivery, Transfer, whole_bytes
from edgefl.simulation.power import Power, Radios
from edgefl.simulation.setup import Setup, Testbed
from edgefl.training.faults import blaming


class Allocation:
    """Answers the network's questions (:class:`~edgefl.network.fairness.Allocator`) with a scenario's allocation."""

    def __init__(self, spec: BandwidthSpec, label: str) -> None:
        self._spec = spec
        self._label = label
        self.round = 0

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


class Traffic:
    """Records every transfer in the log, the totals and the batteries; the network's observer."""

    def __init__(self, env: Clock, setup: Setup, accounts: Accounts, testbed: Testbed | None) -> None:
        self._env = env
        self._log = setup.log
        self._accounts = accounts
        self._cells_average = setup.protocol.averages_in_cells
        self._fleet = setup.fleet
        self._moved: defaultdict[int, float] = defaultdict(float)
        self._carried: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._allocation = None if setup.bandwidth is None else Allocation(setup.bandwidth, setup.label)
        self.network = self._network(setup, testbed)
        self._attempts = Attempts(env, self.network, setup.timeouts, setup.seed, self._broke)
        self.power: Power | None = None
        if accounts.charges is not None:
            radios = Radios(env, setup.fleet.profile_of, self._radio_drew)
            self.power = Power(env, accounts.charges, self.network, radios)

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
        """Start one transfer of ``parts`` to or from the client, for its job number ``dispatch``.

        ``item`` is its name in the log if it does not belong to the job's own round; the direction if not given.
        """
        source, target = self._ends(client, direction)
        transfer = Transfer(client, round, dispatch, direction, tuple(parts), item or direction)
        return self._start(source, target, transfer, outlook)

    def relay(self, source: Node, target: Node, parts: Sequence[Part], round: int) -> Delivery:
        """Start one transfer between the server and a cell."""
        direction: Direction = "down" if source == "server" else "up"
        return self._start(source, target, Transfer(ABSENT, round, ABSENT, direction, tuple(parts), "relay"))

    def cancel(self, delivery: Delivery) -> None:
        self._attempts.cancel(delivery)

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
        delivery: Delivery = flow.tag  # type: ignore[assignment]
        client, round, _, _, parts, _ = delivery.transfer
        facts = f'"path": {_listed(flow.nodes)}, "parts": {_left(parts, delivery.kept)}'
        if delivery.breaks:
            facts += f', "first": {delivery.first}'
            self._accounts.totals.charge("transfers_retries", 1)
        if flow.outlook is not None:
            facts += f', "outlook": {logged(flow.outlook)}'
        if flow.multicast is not None:
            facts += f', "multicast": {flow.multicast}'
        if flow.opening is not None:
            facts += f', "connection": {_state(flow.setup, flow.opening)}'
        self._write("transfer_start", flow, flow.bytes, value=flow.latency, detail="{" + facts + "}")
        if client >= 0 and self.power is not None:
            self.power.flow_started(client, round, flow)

    def flow_ended(self, flow: Flow) -> None:
        delivery: Delivery = flow.tag  # type: ignore[assignment]
        self._transferred("transfer_end", flow)
        delivery.end()

    def flow_cancelled(self, flow: Flow) -> None:
        self._transferred("transfer_drop", flow)

    def capacity_changed(self, link: int, source: Node, target: Node, bits_per_second: float) -> None:
        self._log.write(self._env.now, "capacity", source=str(source), target=str(target), value=bits_per_second)
        self._attempts.capacity_changed(link, bits_per_second)
        if self.power is not None:
            self.power.capacity_changed(link)

    def _transferred(self, kind: EventKind, flow: Flow) -> None:
        delivery: Delivery = flow.tag  # type: ignore[assignment]
        client, round, dispatch, direction, _, _ = delivery.transfer
        accounts = self._accounts
        seconds = self._env.now - flow.started
        delivered = float(whole_bytes(flow))
        self._attempts.flow_over(flow)
        joules = 0.0
        if client >= 0:
            joules = transfer_joules(self._fleet.profile_of(client), direction, seconds, delivered)
            if self.power is not None:
                joules = self.power.given(client, joules, flow)
        self._write(kind, flow, delivered, seconds=seconds, joules=joules)
        if client < 0:
            accounts.totals.charge("bytes_backhaul", delivered)
            return
        accounts.totals.charge(f"bytes_{direction}", delivered)
        accounts.drew(client, joules)
        if self.power is not None:
            self.power.flow_over(client, round, flow)
        self._moved[client] += delivered
        accounts.totals.raise_to("client_bytes", self._moved[client])
        self._carried[client, dispatch] += delivered
        accounts.check()

    def _broke(self, delivery: Delivery, flow: Flow, cause: Cause, lost: int, wait: float | None) -> None:
        client, dispatch, totals = delivery.transfer.client, delivery.transfer.dispatch, self._accounts.totals
        facts = detail(cause=cause, kept=delivery.kept, again=wait is not None)
        self._write("transfer_break", flow, lost, seconds=wait or 0.0, value=delivery.breaks, detail=facts)
        totals.charge("transfers_breaks", 1)
        totals.charge("transfers_failed", wait is None)
        if client >= 0:
            totals.charge("bytes_broken", lost)
            self._carried[client, dispatch] -= lost

    def _write(self, kind: EventKind, flow: Flow, bytes: float, **columns: Any) -> None:
        delivery: Delivery = flow.tag  # type: ignore[assignment]
        client, round, dispatch, _, _, item = delivery.transfer
        columns |= {"flow": flow.id, "source": flow.nodes[0], "target": flow.nodes[-1]}
        self._log.write(self._env.now, kind, round, client, dispatch, item=item, bytes=bytes, **columns)

    def _start(self, source: Node, target: Node, transfer: Transfer, outlook: Outlook | None = None) -> Delivery:
        if self._allocation is not None:
            self._allocation.round = transfer.round
        delivery = Delivery(self._env, source, target, transfer, _sizes(transfer.parts)[0], outlook=outlook)
        self._attempts.begin(delivery)
        return delivery

    def _network(self, setup: Setup, testbed: Testbed | None) -> Network:
        if testbed is None:
            return FlowNetwork(
                self._env, setup.topology, observer=self, transport=setup.transport, allocator=self._allocation
            )
        links = GraphLinks(setup.topology) if isinstance(setup.topology, nx.Graph) else setup.topology
        return testbed.network(links, observer=self, transport=setup.transport)

    def _ends(self, client: int, direction: Direction) -> tuple[Node, Node]:
        own = f"client/{client}"
        gate = self.gate(client) if self._cells_average else "server"
        return (gate, own) if direction == "down" else (own, gate)

    def _radio_drew(self, client: int, round: int, what: str, seconds: float, joules: float) -> None:
        assert self.power is not None
        joules = self.power.given(client, joules)
        self._log.write(self._env.now, "radio", round, client, item=what, seconds=seconds, joules=joules)
        self._accounts.drew(client, joules)
        self._accounts.check()


# Every transfer's row contains its path and parts, and those of one round differ little.


@lru_cache(maxsize=4096)
def _listed(names: tuple[str, ...]) -> str:
    return json.dumps(names)


def _state(setup: float, opening: Opening) -> str:
    """The state of a connection."""
    return json.dumps({"setup": setup, "rounds": opening.rounds})


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
