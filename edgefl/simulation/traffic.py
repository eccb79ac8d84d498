"""Transfers between the server, cells and clients: their start, and the network's reports on them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import simpy

from edgefl.methods.payload import Part
from edgefl.network.flow import Flow, Node
from edgefl.network.flow_network import FlowNetwork
from edgefl.network.route import Alone
from edgefl.record.events import ABSENT, detail
from edgefl.record.kinds import EventKind
from edgefl.simulation.accounts import Accounts
from edgefl.simulation.batteries import Batteries
from edgefl.simulation.protocol_specs import HierarchicalSpec
from edgefl.simulation.radio import Radios
from edgefl.simulation.setup import Setup
from edgefl.simulation.transfer import Direction, Transfer


class Traffic:
    """Records every transfer in the log, the ledger and the batteries; the network's observer.

    Args:
        env: the run's clock.
        setup: everything that the run depends on.
        accounts: counts bytes and joules.

    Attributes:
        network: carries the transfers.
        radios: the promotions and tails of the devices' radios.
        batteries: called for every transfer.
    """

    def __init__(self, env: simpy.Environment, setup: Setup, accounts: Accounts) -> None:
        self._env = env
        self._log = setup.log
        self._accounts = accounts
        self._on_batteries = accounts.charges.any  # else the calls are not needed
        self._cells_average = isinstance(setup.protocol, HierarchicalSpec)
        self._transfer_joules = accounts.draws.transfer
        self._moved: defaultdict[int, float] = defaultdict(float)
        self._carried: defaultdict[tuple[int, int], float] = defaultdict(float)
        self.network = FlowNetwork(env, setup.topology, observer=self, transport=setup.transport)
        self.radios = Radios(env, setup.fleet.profile_of, self._radio_drew)
        self.batteries = Batteries(env, accounts.charges, self.network, self.radios)

    def send(
        self,
        client: int,
        direction: Direction,
        parts: Sequence[Part],
        round: int,
        dispatch: int,
        *,
        early: bool = False,
    ) -> Flow:
        """Start one flow that carries ``parts`` to or from the client, for its job number ``dispatch``."""
        source, target = self._ends(client, direction)
        item = "prefetch" if early else direction
        return self._start(source, target, Transfer(client, round, dispatch, direction, tuple(parts), item))

    def relay(self, source: Node, target: Node, parts: Sequence[Part], round: int) -> Flow:
        """Start one flow between the server and a cell."""
        direction: Direction = "down" if source == "server" else "up"
        return self._start(source, target, Transfer(ABSENT, round, ABSENT, direction, tuple(parts), "relay"))

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
        """A transfer was requested."""
        tag: Transfer = flow.tag  # type: ignore[assignment]
        client, round, dispatch, _, parts, item = tag
        facts = f'"path": {_listed(flow.nodes)}, "parts": {_sizes(parts)[1]}'
        if flow.multicast is not None:
            facts += f', "multicast": {flow.multicast}'
        self._log.write(
            flow.started,
            "transfer_start",
            round,
            client,
            dispatch,
            item=item,
            flow=flow.id,
            source=flow.nodes[0],
            target=flow.nodes[-1],
            bytes=flow.bytes,
            value=flow.latency,
            detail="{" + facts + "}",
        )
        if client >= 0:
            self.radios.starts(client, round)
            if self._on_batteries:
                self.batteries.flow_started(client, flow)

    def flow_ended(self, flow: Flow) -> None:
        """A transfer is complete."""
        self._transferred("transfer_end", flow)

    def flow_cancelled(self, flow: Flow) -> None:
        """A transfer was aborted."""
        self._transferred("transfer_drop", flow)

    def capacity_changed(self, source: Node, target: Node, bits_per_second: float) -> None:
        """A link that is in use has a new capacity from now on."""
        self._log.write(self._env.now, "capacity", source=str(source), target=str(target), value=bits_per_second)
        if self._on_batteries:
            self.batteries.capacity_changed(self.network.topology.link(source, target))

    def capacities_repeated(self, since: float, period: float, times: int) -> None:
        """The changes in the ``period`` seconds from ``since`` have repeated ``times`` more."""
        self._log.write(self._env.now, "repetition", seconds=period, value=times, detail=detail(since=since))

    def _transferred(self, kind: EventKind, flow: Flow) -> None:
        tag: Transfer = flow.tag  # type: ignore[assignment]
        client, round, dispatch, direction, _, item = tag
        accounts, now = self._accounts, self._env.now
        seconds = now - flow.started
        # Parts are whole bytes; for an aborted transfer only whole bytes count, so that sums are exact.
        delivered = float(int(flow.delivered + 1e-6))
        joules = 0.0
        if client >= 0:
            joules = self._transfer_joules(client, direction, seconds, delivered)
            if self._on_batteries:
                joules = self.batteries.given(client, joules, flow)
        self._log.write(
            now,
            kind,
            round,
            client,
            dispatch,
            item=item,
            flow=flow.id,
            source=flow.nodes[0],
            target=flow.nodes[-1],
            bytes=delivered,
            seconds=seconds,
            joules=joules,
        )
        if client < 0:
            accounts.ledger.bytes_backhaul += delivered
            return
        ledger = accounts.ledger
        ledger.moved(direction, delivered, seconds)
        accounts.drew(client, joules)
        self.radios.ends(client, round)
        if self._on_batteries:
            self.batteries.flow_over(client, flow)
        self._moved[client] += delivered
        ledger.client_bytes = max(ledger.client_bytes, self._moved[client])
        self._carried[client, dispatch] += delivered
        accounts.check()

    def _start(self, source: Node, target: Node, transfer: Transfer) -> Flow:
        # Other clients may receive the same parts; an update is unique.
        payload = transfer.parts if transfer.direction == "down" else None
        return self.network.transfer(source, target, _sizes(transfer.parts)[0], tag=transfer, payload=payload)

    def _ends(self, client: int, direction: Direction) -> tuple[Node, Node]:
        own = f"client/{client}"
        gate = self.gate(client) if self._cells_average else "server"
        return (gate, own) if direction == "down" else (own, gate)

    def _radio_drew(self, client: int, round: int, what: str, seconds: float, joules: float) -> None:
        joules = self.batteries.given(client, joules)
        self._log.write(self._env.now, "radio", round, client, item=what, seconds=seconds, joules=joules)
        self._accounts.drew(client, joules)
        self._accounts.check()


# Every transfer's row contains its path and parts, and those of one round differ little.


@lru_cache(maxsize=4096)
def _listed(names: tuple[str, ...]) -> str:
    return json.dumps(names)


@lru_cache(maxsize=64)
def _sizes(parts: tuple[Part, ...]) -> tuple[int, str]:
    return sum(part.bytes for part in parts), json.dumps({part.name: part.bytes for part in parts})
