"""What a transfer is foreseen to take alone is what it then takes."""

import math

import networkx as nx
import pytest
import simpy

from edgefl.network import FlowNetwork, GraphLinks, Transport, TreeLinks, lv08

TRANSPORTS = [Transport(), lv08(), lv08(acknowledgements="shared"), Transport(connection_limit=3e6)]


def relayed(sharing):
    """A client behind a relay that receives and sends on one channel."""
    graph = nx.DiGraph()
    graph.add_edge("server", "relay", capacity=20e6, latency=0.01, air="a")
    graph.add_edge("relay", "client/0", capacity=5e6, latency=0.03, air="a")
    return GraphLinks(graph, sharing=sharing)


NETWORKS = {
    "star": lambda: TreeLinks(server=(1e9, 1e9), down=[280e6], up=[280e6], latency=[0.02]),
    "cell": lambda: TreeLinks(
        server=(1e9, 1e9), down=[50e6], up=[9e6], backhaul=[(30e6, 30e6)], cell=[0], sharing="airtime_fair"
    ),
    "relay": lambda: relayed("rate_fair"),
    "relay with the time shared": lambda: relayed("airtime_fair"),
    "wired relay": lambda: relayed("wired"),
}


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["fluid", "tcp", "tcp, one medium", "limited"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_transfer_alone_takes_what_was_foreseen(name, transport):
    env = simpy.Environment()
    network = FlowNetwork(env, NETWORKS[name](), transport=transport)
    foreseen = network.alone("server", "client/0").seconds(4e6)
    flow = network.transfer("server", "client/0", 4e6)
    env.run()
    assert flow.ended == pytest.approx(foreseen, rel=1e-12)


def test_nothing_is_foreseen_over_a_link_that_is_down():
    network = FlowNetwork(simpy.Environment(), relayed("rate_fair"))
    network.set_capacity("relay", "client/0", 0.0)
    assert network.alone("server", "client/0").seconds(1.0) == math.inf
