"""The network of an emulated world: transfers that processes carry out over real links."""

import itertools
import math
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from edgefl.emulation.real_links import RealLinks
from edgefl.network.capacities.base import CapacityProcess
from edgefl.network.connections import Connection, Connections
from edgefl.network.fairness import Outlook
from edgefl.network.flow import Alone, Flow, FlowObserver
from edgefl.network.tcp import Opening
from edgefl.network.topology import Node, Topology, router
from edgefl.network.transport import Transport
from edgefl.simulation.clock import Clock


class RealNetwork:
    """As :class:`~edgefl.network.flow_network.FlowNetwork`, of real links; capacities are followed at all times."""

    def __init__(
        self, env: Clock, topology: Topology, *, observer: FlowObserver, transport: Transport, carrier: RealLinks
    ) -> None:
        self.env, self.topology, self.route = env, topology, router(topology)
        self._observer, self._transport, self._carrier = observer, transport, carrier
        self._capacity = list(topology.capacity)
        self._announced: dict[int, float] = {}
        self._processes: dict[int, CapacityProcess] = {}
        self._under_way: dict[int, Flow] = {}
        self._numbers = itertools.count()
        self._connections = None if transport.tcp is None else Connections(transport.tcp)
        self._in_use: dict[int, tuple[Connection, Opening]] = {}
        self._failed: dict[int, float] = {}
        self._before_crash: dict[int, int] = {}

    def transfer(
        self,
        source: Node,
        target: Node,
        bytes: float,
        *,
        tag: object = None,
        weight: float = 1.0,
        payload: Hashable = None,
        outlook: Outlook | None = None,
    ) -> Flow:
        """Weight, payload and outlook have no effect: TCP shares the links, and each receiver gets its own bytes."""
        route = self.route(source, target)
        flow = Flow(
            self.env,
            next(self._numbers),
            source,
            target,
            bytes,
            path=route.links,
            nodes=route.nodes,
            latency=route.latency,
            weight=weight,
            tag=tag,
            bytes_left=self._bytes_left,
        )
        round_trips = None if self._connections is None else self._connect(flow, route.latency)
        self._under_way[flow.id] = flow
        for link in flow.path:
            self._announce(link)
        self._observer.flow_started(flow)
        self._carrier.send(flow.id, str(source), str(target), round(bytes), round_trips)
        return flow

    def cancel(self, flow: Flow) -> None:
        if self._under_way.pop(flow.id, None) is None:
            return
        self._in_use.pop(flow.id, None)
        arrived = self._carrier.stop(flow.id, str(flow.source), str(flow.target))
        arrived = self._before_crash.pop(flow.id, arrived)
        flow.settle(self.env.now, min(float(arrived), flow.bytes), cancelled=True)
        self._observer.flow_cancelled(flow)

    def arrived(self, number: int) -> None:
        """The last byte of a flow has arrived now."""
        flow = self._under_way.pop(number, None)
        if flow is None:
            return  # stopped before the report came
        if self._connections is not None:
            connection, opening = self._in_use.pop(number)
            self._connections.give_back(flow.source, flow.target, connection, self.env.now, opening)
        flow.settle(self.env.now, flow.bytes, cancelled=False)
        self._observer.flow_ended(flow)
        flow.succeed(flow)

    def set_capacities(self, links: NDArray[np.int64], bits_per_second: NDArray[np.float64]) -> None:
        for link in links.tolist():
            self._processes.pop(link, None)
        self._assign(dict(zip(links.tolist(), bits_per_second.tolist(), strict=True)))

    def follow(self, link: int, process: CapacityProcess) -> None:
        self._processes[link] = process
        self._step(link, process, self.env.now)

    def capacity(self, source: Node, target: Node) -> float:
        return self._capacity[self.topology.link(source, target)]

    def alone(self, source: Node, target: Node) -> Alone:
        route = self.route(source, target)
        capacity = min((self._capacity[link] for link in route.links), default=math.inf)
        opening = Opening(0)
        if self._connections is not None:
            opening = self._connections.opening(source, target, self.env.now, latency=route.latency)
        return self._transport.alone(route.latency, capacity, opening)

    def begin_outage(self, link: int) -> None:
        before = self._capacity[link]
        self._assign({link: 0.0})
        self._failed[link] = before

    def end_outage(self, link: int) -> None:
        self._assign({link: self._failed.pop(link)})

    def end_process(self, node: Node) -> None:
        if self._connections is not None:
            self._connections.forget(node)
        for flow in self._under_way.values():
            if node in (flow.source, flow.target):
                # A process that has ended cannot say what has arrived.
                self._before_crash[flow.id] = self._carrier.progress(flow.id, str(flow.target))
        self._carrier.end_process(str(node))

    def begin_process(self, node: Node) -> None:
        self._carrier.begin_process(str(node))

    def is_under_way(self, number: int) -> bool:
        return number in self._under_way

    @property
    def under_way(self) -> bool:
        return bool(self._under_way)

    @property
    def blocked(self) -> bool:
        """True if each of them waits for a link without capacity."""
        return all(any(self._capacity[link] <= 0.0 for link in flow.path) for flow in self._under_way.values())

    def bytes_under_way(self) -> int:
        """The bytes that have arrived so far of the transfers in progress."""
        return sum(self._carrier.progress(flow.id, str(flow.target)) for flow in self._under_way.values())

    def _connect(self, flow: Flow, latency: float) -> int | None:
        assert self._connections is not None
        opening, connection = self._connections.take(flow.source, flow.target, self.env.now, latency=latency)
        self._in_use[flow.id] = (connection, opening._replace(round_trips=0))
        return None if connection.used else max(opening.round_trips - 1, 0)

    def _bytes_left(self, flow: Flow) -> float:
        arrived = self._before_crash.get(flow.id)
        if arrived is None:
            arrived = self._carrier.progress(flow.id, str(flow.target))
        return flow.bytes - arrived

    def _step(self, link: int, process: CapacityProcess, seconds: float) -> None:
        """Set a capacity from its process, now and at each change."""
        if self._processes.get(link) is not process:
            return
        self._assign({link: process.value(seconds)})
        following = process.next_change(seconds)
        if following < math.inf:
            wait = self.env.timeout(max(following - self.env.now, 0.0))
            wait.callbacks.append(lambda _: self._step(link, process, following))

    def _assign(self, capacities: dict[int, float]) -> None:
        for link in self._failed.keys() & capacities.keys():
            self._failed[link] = capacities[link]
        capacities = {link: rate for link, rate in capacities.items() if link not in self._failed}
        changed = {link: rate for link, rate in capacities.items() if rate != self._capacity[link]}
        ends: dict[tuple[str, str], float] = {}
        for link, rate in changed.items():
            self._capacity[link] = rate
            source, target = self.topology.ends(link)
            ends[str(source), str(target)] = rate
        if ends:
            self._carrier.set_capacities(ends)
        busy = {link for flow in self._under_way.values() for link in flow.path}
        for link in changed.keys() & busy:
            self._announce(link)

    def _announce(self, link: int) -> None:
        if self._announced.get(link) != self._capacity[link]:
            self._announced[link] = self._capacity[link]
            source, target = self.topology.ends(link)
            self._observer.capacity_changed(link, source, target, self._capacity[link])
