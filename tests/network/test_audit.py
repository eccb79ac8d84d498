"""The audit agrees with the network: slow start, a queue's draws, weights, outages in any order, and cells."""

import networkx as nx
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.network import FlowNetwork, Transport
from edgefl.network.tcp import Tcp
from edgefl.network.transport import FifoQueue

from .audit import Claim, Log, audit_flows, fill, record_of


def test_progressive_filling_gives_the_textbook_rates():
    # Bertsekas and Gallager's shape: three links in a row, one flow over all of them, one more on each.
    links = {"a": 1.0, "b": 2.0, "c": 4.0}
    paths = ["abc", "a", "b", "c"]
    claims = [Claim(n, 1.0, [(link, links[link], 1.0) for link in path]) for n, path in enumerate(paths)]
    assert fill(claims) == {0: 0.5, 1: 0.5, 2: 1.5, 3: 3.5}


RATES = st.one_of(st.sampled_from([1e5, 1e6, 3e6]), st.floats(1e5, 1e7))
MILLISECONDS = st.integers(1, 3000).map(lambda number: number / 1000.0)
TCPS = st.builds(
    Tcp,
    handshake=st.sampled_from(["none", "tcp", "tls", "tls_0rtt"]),
    keep_alive=st.sampled_from([0.0, 1.0, 100.0]),
    segment=st.sampled_from([500.0, 1460.0]),
    initial_window=st.sampled_from([None, 1, 10]),
)
QUEUES = st.one_of(st.none(), st.builds(FifoQueue, st.integers(0, 9), st.just(1.0), st.integers(0, 2)))
TRANSPORTS = st.builds(Transport, efficiency=st.sampled_from([1.0, 0.9]), tcp=st.one_of(st.none(), TCPS), queue=QUEUES)


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
        st.sampled_from([1.0, 1.0, 2.5]),
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
        for moment, client, down, size, cancelled, weight in transfers:
            ends = ("server", f"client/{client}")
            self.at(moment, self.begin, ends if down else ends[::-1], size, cancelled, weight)
        for moment, link, rate in changes:
            self.at(moment, self.network.set_capacity, *link, rate)
        for link in self.graph.edges:  # every outage ends
            self.at(4.0, self.network.set_capacity, *link, 1e6)

    def at(self, seconds, action, *what):
        self.env.timeout(seconds).callbacks.append(lambda _: action(*what))

    def begin(self, ends, size, cancelled, weight):
        flow = self.network.transfer(*ends, size, weight=weight)
        if cancelled is not None:
            self.at(cancelled, self.network.cancel, flow)


@given(scenes(), TRANSPORTS)
@settings(max_examples=30, deadline=None)
def test_the_audit_agrees_with_every_transfer(scene, transport):
    world = World(scene, transport)
    world.env.run()
    assert world.network.flows == []
    assert world.audit(world.network.topology, transport=transport) == []


@pytest.mark.parametrize("wrong", ["ended", "opening"])
def test_the_audit_finds_a_wrong_row(wrong):
    transport = Transport(tcp=Tcp(handshake="tcp", initial_window=2), queue=FifoQueue(1))
    graph = nx.DiGraph()
    graph.add_edge("server", "internet", capacity=4e6, latency=0.0)
    for client in range(3):
        graph.add_edge("internet", f"client/{client}", capacity=8e6, latency=0.02)
    transfers = [(0.1 * client, client, True, 3e5, None, 1.0) for client in range(3)]
    world = World((graph, transfers, []), transport)
    world.env.run()
    records = [record_of(flow, world.network.topology) for flow in world.flows]
    assert audit_flows(world.capacities, records, transport=transport) == []
    first = records[1]
    other = {"ended": first.ended + 0.01, "opening": first.opening._replace(rounds=2)}[wrong]
    records[1] = first._replace(**{wrong: other})
    assert audit_flows(world.capacities, records, transport=transport)


@given(scenes(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_in_which_flows_are_started_at_one_instant_has_no_say(scene, shuffler):
    graph, transfers, _ = scene
    numbered = [(0.0, *rest, 1.0 + number) for number, (_, *rest, _) in enumerate(transfers)]
    ends = []
    for sequence in (numbered, shuffler.sample(numbered, len(numbered))):
        world = World((graph, sequence, []), Transport())
        world.env.run()
        ends.append({flow.weight: flow.ended for flow in world.flows})
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)
