"""Slow start, losses, a queue's draws and outages, in any order: bytes are conserved and shares stay fair."""

import math

import networkx as nx
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.network import FlowNetwork, Transport
from edgefl.network.tcp import Tcp
from edgefl.network.transport import FifoQueue

from .audit import Log, audit_flows, record_of

RATES = st.one_of(st.sampled_from([1e5, 1e6, 3e6]), st.floats(1e5, 1e7))
MILLISECONDS = st.integers(1, 3000).map(lambda number: number / 1000.0)
TCPS = st.builds(
    Tcp,
    handshake=st.sampled_from(["none", "tcp", "tls", "tls_0rtt"]),
    keep_alive=st.sampled_from([0.0, 1.0, 100.0]),
    segment=st.sampled_from([500.0, 1460.0]),
    initial_window=st.sampled_from([None, 1, 10]),
    restart_idle=st.booleans(),
    window=st.sampled_from([2.0**30, 5e4]),
    loss=st.sampled_from([0.0, 1e-4, 0.01, 0.2]),
    acknowledge_every=st.sampled_from([1, 2]),
)
QUEUES = st.one_of(st.none(), st.builds(FifoQueue, st.integers(0, 9), st.just(1.0), st.integers(0, 2)))
TRANSPORTS = st.builds(
    Transport,
    efficiency=st.sampled_from([1.0, 0.9]),
    connection_limit=st.sampled_from([math.inf, 5e5]),
    tcp=st.one_of(st.none(), TCPS),
    queue=QUEUES,
)


@st.composite
def scenes(draw):
    """A server's link with clients behind it, transfers to and from them, cancellations and capacity changes."""
    clients = draw(st.integers(1, 4))
    graph = nx.DiGraph()
    latency = draw(st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.3]), min_size=clients, max_size=clients))
    for client in range(clients):
        graph.add_edge("internet", f"client/{client}", capacity=draw(RATES), latency=latency[client])
        graph.add_edge(f"client/{client}", "internet", capacity=draw(RATES), latency=latency[client])
    graph.add_edge("server", "internet", capacity=draw(RATES), latency=0.0)
    graph.add_edge("internet", "server", capacity=draw(RATES), latency=0.0)
    moments = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), MILLISECONDS)
    transfer = st.tuples(
        moments,
        st.integers(0, clients - 1),
        st.booleans(),
        st.sampled_from([0.0, 1e3, 2e4, 1e5, 3e5]),
        st.one_of(st.none(), st.none(), MILLISECONDS),
    )
    change = st.tuples(moments, st.sampled_from(sorted(graph.edges)), st.one_of(st.just(0.0), RATES))
    return graph, draw(st.lists(transfer, min_size=1, max_size=8)), draw(st.lists(change, max_size=6))


class World(Log):
    """A scene that runs: its flows, and the capacities as the network reported them."""

    def __init__(self, scene, transport):
        self.graph, transfers, changes = scene
        super().__init__(simpy.Environment())
        self.network = FlowNetwork(self.env, self.graph, observer=self, transport=transport)
        self.transport = transport
        for moment, client, down, size, cancelled in transfers:
            ends = ("server", f"client/{client}")
            self.at(moment, self.begin, ends if down else ends[::-1], size, cancelled)
        for moment, link, rate in changes:
            self.at(moment, self.network.set_capacity, *link, rate)
        for link in self.graph.edges:  # every outage ends
            self.at(4.0, self.network.set_capacity, *link, 1e6)

    def at(self, seconds, action, *what):
        self.env.timeout(seconds).callbacks.append(lambda _: action(*what))

    def begin(self, ends, size, cancelled):
        flow = self.network.transfer(*ends, size)
        if cancelled is not None:
            self.at(cancelled, self.network.cancel, flow)

    def limit(self, flow):
        tcp, latency = self.transport.tcp, flow.latency - flow.setup
        most = self.transport.connection_limit
        if tcp is None or self.env.now < flow.started + flow.latency:
            return most
        opening = flow.opening
        ticks = math.floor((self.env.now - flow.started - flow.latency) / (2.0 * latency)) if latency else 0
        for _ in range(ticks):
            if tcp.grows(latency, opening):
                opening = opening._replace(rounds=opening.rounds + 1)
        _, state = tcp.legs(flow.bytes, flow.opening)[len(flow.losses)]
        return min(most, tcp.limit(latency, state._replace(rounds=opening.rounds)))


@given(scenes(), TRANSPORTS, st.lists(st.floats(0.01, 1.0), max_size=5))
@settings(max_examples=30, deadline=None)
def test_bytes_are_conserved_and_looking_changes_nothing(scene, transport, looks):
    world, unwatched = World(scene, transport), World(scene, transport)
    before = {}
    for gap in looks:
        world.env.run(until=world.env.now + gap)
        for flow in world.network.flows:
            assert before.get(flow.id, 0.0) <= flow.delivered * (1 + 1e-9) + 1e-6
            assert flow.delivered <= flow.bytes
            before[flow.id] = flow.delivered
    for each in (world, unwatched):
        each.env.run()
        assert each.network.flows == []
        for flow in each.flows:
            assert flow.cancelled or flow.delivered == flow.bytes
    assert [flow.ended for flow in world.flows] == [flow.ended for flow in unwatched.flows]


@given(scenes(), TRANSPORTS)
@settings(max_examples=30, deadline=None)
def test_the_audit_agrees_with_every_transfer(scene, transport):
    world = World(scene, transport)
    world.env.run()
    assert world.audit(world.network.topology, transport=transport) == []


@given(scenes(), TRANSPORTS, st.floats(0.0, 3.5))
@settings(max_examples=30, deadline=None)
def test_every_flow_is_at_its_limit_or_crosses_a_full_link_on_which_no_flow_has_a_higher_level(
    scene, transport, moment
):
    world = World(scene, transport)
    world.env.run(until=moment + 1e-7)
    network, now = world.network, world.env.now
    on_link = {}
    for flow in network.flows:
        if now > flow.started + flow.latency:
            for link in flow.path:
                on_link.setdefault(link, []).append(flow)

    def level(flow):
        queue = transport.queue
        weight = 1.0 if queue is None else queue.weight(flow.source, flow.target, flow.started)
        return network.rate(flow) / weight

    full = set()
    for link, users in on_link.items():
        load, usable = sum(map(network.rate, users)), network.capacity(*network.topology.ends(link))
        usable *= transport.efficiency
        assert load <= usable * (1 + 1e-9)
        if load >= usable * (1 - 1e-9):
            full.add(link)
    for flow in {flow for users in on_link.values() for flow in users}:
        limit = world.limit(flow)
        assert network.rate(flow) <= limit * (1 + 1e-9)
        assert network.rate(flow) >= limit * (1 - 1e-9) or any(
            link in full and all(level(other) <= level(flow) * (1 + 1e-9) for other in on_link[link])
            for link in flow.path
        )


@pytest.mark.parametrize("wrong", ["ended", "losses", "opening"])
def test_the_audit_finds_a_wrong_row(wrong):
    transport = Transport(tcp=Tcp(handshake="tcp", initial_window=2, loss=0.01), queue=FifoQueue(1))
    graph = nx.DiGraph()
    graph.add_edge("server", "internet", capacity=4e6, latency=0.0)
    for client in range(3):
        graph.add_edge("internet", f"client/{client}", capacity=8e6, latency=0.02)
    transfers = [(0.1 * client, client, True, 3e5, None) for client in range(3)]
    world = World((graph, transfers, []), transport)
    world.env.run()
    records = [record_of(flow, world.network.topology) for flow in world.flows]
    assert audit_flows(world.capacities, records, transport=transport) == []
    first = records[1]
    other = {
        "ended": first.ended + 0.01,
        "losses": (first.losses[0] + 0.01, *first.losses[1:]),
        "opening": first.opening._replace(rounds=2),
    }[wrong]
    records[1] = first._replace(**{wrong: other})
    assert audit_flows(world.capacities, records, transport=transport)
