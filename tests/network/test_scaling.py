"""Seconds of one transfer alone, and links that are scaled."""

import math

import networkx as nx
import numpy as np
import pytest
import simpy

from edgefl.network import FlowNetwork, GraphLinks, Transport, TreeLinks, lv08, replayed
from edgefl.network.client_links import ClientLinks
from edgefl.network.specs import LinkSpec

UNIFORM = {"kind": "uniform", "low": 1e6, "high": 3e6}
PROCESS = {"kind": "process", "quantiles": {10: 1e6, 90: 9e6}}
FACTOR = 0.37


class Network:
    """Keeps the capacities that links are given, by the number of the link."""

    def __init__(self, topology):
        self.topology, self.constant, self.followed = topology, {}, {}

    def set_capacities(self, numbers, capacities):
        self.constant |= dict(zip(numbers.tolist(), capacities.tolist(), strict=True))

    def follow(self, number, process):
        self.followed[number] = process


class Topology:
    def access(self, client, *, up):
        return 2 * int(client.partition("/")[2]) + up


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("seconds,bits_per_second\n0,2000000\n1,8000000\n3,4000000\n")
    return {"kind": "trace", "file": str(file), "format": "csv"}


def links_of(**ways):
    return ClientLinks({"l": LinkSpec.model_validate(ways)}, ["l"] * 5, seed=3)


def given(links):
    network = Network(Topology())
    links.attach(network)
    times = np.linspace(0, 20, 41)
    followed = {number: [process.value(time) for time in times] for number, process in network.followed.items()}
    return network.constant, followed


@pytest.mark.parametrize("down", [5e6, UNIFORM, PROCESS, "trace"])
def test_every_capacity_is_multiplied(trace, down):
    links = links_of(down=trace if down == "trace" else down, up=UNIFORM)
    constant, followed = given(links)
    scaled_constant, scaled_followed = given(links.scaled(FACTOR))
    assert scaled_constant == pytest.approx({key: FACTOR * rate for key, rate in constant.items()}, nan_ok=True)
    assert scaled_followed.keys() == followed.keys()
    for number, rates in followed.items():
        assert scaled_followed[number] == pytest.approx([FACTOR * rate for rate in rates])
    assert given(links) == (constant, followed)


def test_no_file_is_read_again(trace, monkeypatch):
    links = links_of(down=trace, up=5e6)
    monkeypatch.setattr(replayed, "read_traces", None)
    given(links.scaled(2))


@pytest.mark.parametrize(
    ("down", "usual"), [(5e6, 5e6), (UNIFORM, 2e6), (PROCESS, 5e6), ("trace", (2e6 + 2 * 8e6 + 2 * 4e6) / 5)]
)
def test_the_usual_capacity_is_the_middle_of_what_a_client_has(trace, down, usual):
    links = links_of(down=trace if down == "trace" else down, up=1e6)
    assert links.usual("down").tolist() == pytest.approx([usual] * 5)
    assert links.scaled(FACTOR).usual("down").tolist() == pytest.approx([FACTOR * usual] * 5)


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
