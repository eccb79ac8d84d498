"""The network of the simulated world: transfers that share links max-min fairly, solved together at each instant."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator

import networkx as nx
import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.errors import WrongAnswer
from edgefl.network.capacities.base import CapacityProcess
from edgefl.network.connections import TcpFlows
from edgefl.network.fairness import Allocator, Outlook
from edgefl.network.flow import Agenda, Alone, Flow, FlowObserver, Multicast
from edgefl.network.sharing import Sharing
from edgefl.network.tcp import Opening
from edgefl.network.topology import GraphLinks, Node, Topology, checked_capacity, router
from edgefl.network.transport import Transport
from edgefl.units import slack


class FlowNetwork:
    """A directed network whose links are shared by concurrent flows with exact (weighted) max-min fairness.

    Rates are solved again whenever a flow starts or ends or a capacity changes; progress between these events is exact.
    A flow takes no bandwidth until the latency of its path has passed. A link of capacity 0 stalls its flows.

    Args:
        env: the SimPy environment, whose clock counts seconds.
        topology: a directed networkx graph whose edges carry ``capacity`` (bit/s) and ``latency`` (s, 0 where left
            out), whose later changes have no effect, or links as arrays (:class:`~edgefl.network.tree.TreeLinks`).
        observer: called for every flow and capacity change at its virtual time.
        transport: how flows use their paths; a pure fluid by default.
        allocator: decides how flows share links, with a transport without multicast, tcp and queue; None for equal
            shares, weighted by their transport.

    Two clients share a server of 8 Mbit/s; only the first is limited by its own link.

    >>> env = simpy.Environment()
    >>> graph = nx.DiGraph()
    >>> graph.add_edge("server", "internet", capacity=8e6, latency=0.0)
    >>> graph.add_edge("internet", "client/0", capacity=2e6, latency=0.02)
    >>> graph.add_edge("internet", "client/1", capacity=9e6, latency=0.02)
    >>> network = FlowNetwork(env, graph)
    >>> flows = [network.transfer("server", f"client/{c}", 1_500_000) for c in range(2)]
    >>> env.run()
    >>> [round(flow.ended, 6) for flow in flows]
    [6.02, 2.02]
    """

    def __init__(
        self,
        env: simpy.Environment,
        topology: nx.DiGraph[Node] | Topology,
        *,
        observer: FlowObserver | None = None,
        transport: Transport | None = None,
        allocator: Allocator | None = None,
    ) -> None:
        self.env = env
        self.topology: Topology = GraphLinks(topology) if isinstance(topology, nx.Graph) else topology
        self.route = router(self.topology)
        self._observer = observer
        self._transport = Transport() if transport is None else transport
        self._allocator = allocator
        self._sharing = Sharing(
            self.topology, self._transport, env.now, announce=self._announce, occupied=self._follow, allocator=allocator
        )
        self._processes: dict[int, CapacityProcess] = {}
        self._following: dict[int, CapacityProcess] = {}
        self._failed: dict[int, float] = {}
        self._under_way: dict[int, Flow] = {}
        self._numbers = itertools.count()
        self._multicast_numbers = itertools.count(1)
        self._multicasts: dict[int, Multicast] = {}
        self._gathering: dict[Hashable, Multicast] = {}
        self._agenda = Agenda(env, self._settle)
        self._tcp: TcpFlows | None = None
        if (tcp := self._transport.tcp) is not None:
            self._tcp = TcpFlows(env, tcp, self._agenda, self._sharing)

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
        """Send ``bytes`` over the least-latency path; the flow triggers when they have arrived.

        ``weight`` is the flow's share of a contended link relative to flows of weight 1. Under a transport with
        ``multicast``, transfers of equal payloads that the node begins at this instant end together; a payload of None
        has one receiver. ``outlook`` is for an allocator; ``tag`` is any object.
        """
        route = self.route(source, target)
        if not 0.0 <= bytes < math.inf:
            raise ValueError(f"expected a finite number of bytes of at least 0, found {bytes!r}")
        if not 0.0 < weight < math.inf:
            raise ValueError(f"expected a positive finite weight, found {weight!r}")
        flow = Flow(
            self.env,
            next(self._numbers),
            source,
            target,
            bytes,
            path=route.links,
            nodes=route.nodes,
            latency=route.latency * self._transport.latency_factor,
            weight=weight,
            tag=tag,
            bytes_left=self._bytes_left,
            outlook=outlook,
        )
        if self._tcp is not None:
            self._tcp.request(flow, route.latency)
        self._under_way[flow.id] = flow
        alone = payload is None or not self._transport.multicast
        group = None if alone else self._gather(flow, (source, payload, bytes, weight, self.env.now))
        if self._observer is not None:
            self._observer.flow_started(flow)
        if group is None:
            self._agenda.at(flow.started + flow.latency, self._join, flow)
        else:
            self._agenda.at(group.starts, self._join_together, (group, group.starts))
        return flow

    def cancel(self, flow: Flow) -> None:
        """Stop a flow that has not ended; what has arrived stays ``flow.delivered``, and its event never triggers."""
        if self._under_way.pop(flow.id, None) is None:
            return
        left = self._bytes_left(flow)
        if flow.multicast is None:
            self._sharing.leave(flow.id, self.env.now)
        else:
            self._prune(self._multicasts[flow.multicast], flow)
        if self._tcp is not None:
            self._tcp.cancelled(flow)
        flow.settle(self.env.now, max(flow.bytes - left, 0.0), cancelled=True)
        if self._observer is not None:
            self._observer.flow_cancelled(flow)
        self._agenda.settle_now()

    def set_capacity(self, source: Node, target: Node, bits_per_second: float) -> None:
        """Change a link's capacity from now on and detach its process; 0 is an outage."""
        link = self.topology.link(source, target)
        self._processes.pop(link, None)
        self._set(link, checked_capacity(bits_per_second, f"link {source!r} -> {target!r}"))
        self._sharing.announce(link)
        self._apply(link)

    def set_capacities(self, links: NDArray[np.int64], bits_per_second: NDArray[np.float64]) -> None:
        """Change the capacities of different links, given by number, from now on; an idle one is reported later."""
        if self._processes:
            for link in links.tolist():
                self._processes.pop(link, None)
        if self._failed:
            failed = np.isin(links, list(self._failed))
            self._failed |= dict(zip(links[failed].tolist(), bits_per_second[failed].tolist(), strict=True))
            links, bits_per_second = links[~failed], bits_per_second[~failed]
        for link in self._sharing.assign_capacities(links, bits_per_second):
            self._apply(link)

    def begin_outage(self, link: int) -> None:
        self._failed[link] = self._present(link)
        self._sharing.set_capacity(link, 0.0)
        self._apply(link)

    def end_outage(self, link: int) -> None:
        capacity, process = self._failed.pop(link), self._processes.get(link)
        self._sharing.set_capacity(link, capacity if process is None else process.value(self._instant))
        self._apply(link)

    def end_process(self, node: Node) -> None:
        if self._tcp is not None:
            self._tcp.forget(node)

    def begin_process(self, node: Node) -> None:
        """No effect on flows."""

    def set_process(self, source: Node, target: Node, process: CapacityProcess) -> None:
        """Let a link's capacity follow a process, which is evaluated only while the link carries flows."""
        self.follow(self.topology.link(source, target), process)

    def follow(self, link: int, process: CapacityProcess) -> None:
        self._processes[link] = process
        if self._sharing.is_busy(link):
            self._follow(link)
            self._apply(link)

    def capacity(self, source: Node, target: Node) -> float:
        """The present capacity of a link, bit/s; of a link that carries flows, the one that they share now."""
        return self._present(self.topology.link(source, target))

    def rate(self, flow: Flow) -> float:
        """The present rate of a flow, bit/s; 0 before its latency has passed and after its end."""
        return self._sharing.rate(_stream(flow))

    def alone(self, source: Node, target: Node) -> Alone:
        topology = self.topology
        route = self.route(source, target)
        least, taken = math.inf, dict[int, float]()
        for link in route.links:
            capacity = self._present(link)
            least = min(least, capacity)
            if topology.airs and capacity > 0.0 and (air := topology.air(link)) >= 0:
                taken[air] = taken.get(air, 0.0) + 1.0 / capacity
        capacity = min([least, *(1.0 / each for each in taken.values())])
        tcp = self._tcp
        opening = Opening(0) if tcp is None else tcp.opening(source, target, self.env.now, latency=route.latency)
        return self._transport.alone(route.latency, capacity, opening)

    @property
    def flows(self) -> list[Flow]:
        """The flows in progress, in the order of their start."""
        return [self._under_way[number] for number in sorted(self._under_way)]

    def _present(self, link: int) -> float:
        if link in self._failed:
            return 0.0
        process = self._processes.get(link)
        # A busy link has a new capacity as soon as it changes, even if the clock is a rounding error earlier.
        if process is None or self._sharing.is_busy(link):
            return self._sharing.capacity(link)
        return process.value(self._instant)

    @property
    def _instant(self) -> float:
        """The last moment that counts as now: a process that changes then has its new value."""
        return self.env.now + slack(self.env.now)

    def _announce(self, link: int, bits_per_second: float) -> None:
        if self._observer is not None:
            self._observer.capacity_changed(link, *self.topology.ends(link), bits_per_second)

    def _follow(self, link: int, change: float | None = None) -> None:
        """Set a link's capacity of its change's own time (the clock may be a rounding error earlier); plan the next."""
        process = self._processes.get(link)
        if process is None:
            return
        seconds = self._instant if change is None else change
        self._set(link, process.value(seconds))
        following = process.next_change(seconds)
        if not following > seconds:
            raise WrongAnswer(f"a capacity's next_change({seconds:g}) returned {following!r}; expected a later time")
        if following < math.inf and self._following.get(link) is not process:
            self._following[link] = process
            self._agenda.at(following, self._change, (link, process, following))

    def _set(self, link: int, bits_per_second: float) -> None:
        """Set a capacity; during an outage it takes effect afterwards."""
        if link in self._failed:
            self._failed[link] = bits_per_second
        else:
            self._sharing.set_capacity(link, bits_per_second)

    def _change(self, what: tuple[int, CapacityProcess, float]) -> None:
        link, process, seconds = what
        if self._following.get(link) is not process:
            return  # another process has replaced this one
        del self._following[link]
        if self._processes.get(link) is process and self._sharing.is_busy(link):
            self._follow(link, seconds)
            self._apply(link)

    def _apply(self, link: int) -> None:
        if self._sharing.is_busy(link):
            self._sharing.apply_capacity(link, self.env.now)
            self._agenda.settle_now()

    def _bytes_left(self, flow: Flow) -> float:
        bits = self._sharing.bits_left(_stream(flow), self.env.now)
        return flow.bytes if bits is None else bits / 8.0

    def _join(self, flow: Flow) -> None:
        if flow.id in self._under_way:
            self._send(flow, math.inf if self._tcp is None else self._tcp.joined(flow))

    def _send(self, flow: Flow, limit: float) -> None:
        weight = flow.weight
        if self._transport.queue is not None and flow.multicast is None:
            weight *= self._transport.queue.weight(flow.source, flow.target, flow.started)
        self._sharing.join(
            flow.id,
            flow.path,
            8.0 * flow.bytes,
            self.env.now,
            weight=weight,
            latency=flow.latency - flow.setup,
            limit=limit,
            size=flow.bytes,
            outlook=flow.outlook,
        )

    def _gather(self, flow: Flow, key: Hashable) -> Multicast:
        group = self._gathering.get(key)
        if group is None:
            group = self._gathering[key] = Multicast(next(self._multicast_numbers), key)
            self._multicasts[group.id] = group
        group.add(flow)
        return group

    def _join_together(self, what: tuple[Multicast, float]) -> None:
        group, starts = what
        # It may already be running, or wait for a member whose path is longer.
        if group.members and not group.joined and starts == group.starts:
            group.joined = True
            del self._gathering[group.key]
            self._use(group, 8.0 * group.first.bytes)

    def _use(self, group: Multicast, bits: float) -> None:
        latency = group.starts - group.first.started
        self._sharing.join(-group.id, group.path, bits, self.env.now, weight=group.first.weight, latency=latency)

    def _prune(self, group: Multicast, flow: Flow) -> None:
        """Remove a member, and the links that only this member used."""
        before = group.path
        del group.members[flow.id]
        bits = self._sharing.bits_left(-group.id, self.env.now)
        if group.members and len(group.path) == len(before):
            return
        self._sharing.leave(-group.id, self.env.now)
        if not group.members:
            del self._multicasts[group.id]
            self._gathering.pop(group.key, None)
        elif bits is not None:
            self._use(group, bits)

    def _flows_of(self, numbers: Iterable[int]) -> Iterator[int]:
        for number in numbers:
            if number >= 0:
                yield number
            else:
                yield from self._multicasts.pop(-number).members

    def _settle(self, until: float, now: float) -> float:
        """End the flows that are complete, or else update all rates; return when the next flow will end."""
        complete = self._sharing.take_complete(until, now)
        if complete:
            for number in sorted(self._flows_of(complete)):
                flow = self._under_way.pop(number)
                if self._tcp is not None:
                    self._tcp.completed(flow)
                flow.settle(now, flow.bytes, cancelled=False)
                if self._observer is not None:
                    self._observer.flow_ended(flow)
                flow.succeed(flow)
            return now  # processes that waited for these flows may start others at this instant; solve after them
        self._sharing.solve(now)
        if self._allocator is not None:
            for expiry, what in self._sharing.take_expiries():
                self._agenda.at(expiry, self._sharing.ask_again, what)
        return self._sharing.next_end()


def _stream(flow: Flow) -> int:
    """The number that a flow's links use for it: that of its multicast (below 0), or its own."""
    return flow.id if flow.multicast is None else -flow.multicast
