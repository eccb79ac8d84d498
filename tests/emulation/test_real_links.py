"""Real links give transfers the times of the simulated network.

What runs always checks only what a busy machine cannot break: nothing is faster than its link, and nothing passes in an
outage. The exact comparison is slow, and needs an idle machine.
"""

import networkx as nx
import pytest

from edgefl.emulation.machine import check, missing
from edgefl.emulation.wiring import LinkSettings, plan_wiring
from edgefl.network.topology import GraphLinks
from edgefl.network.tree import TreeLinks

from .real_transfers import carry

LACK = missing(check())
pytestmark = pytest.mark.skipif(LACK is not None, reason=str(LACK))

EARLY = 0.004
"""Seconds by which a transfer may be early: the tokens that links save, and a packet."""


def star(*, down, up, server=1e9, latency=0.0, cells=()):
    cell = [client % len(cells) for client in range(len(down))] if cells else None
    backhaul = [(rate, rate) for rate in cells]
    return TreeLinks(server=(server, server), down=down, up=up, latency=latency, backhaul=backhaul, cell=cell)


def wired(topology, clients):
    return plan_wiring(topology, [("server", f"client/{client}") for client in range(clients)])


def test_transfers_are_not_faster_than_their_links_and_arrive_whole():
    topology = star(down=[20e6, 10e6], up=[10e6, 20e6], server=24e6, latency=0.01)
    phases = [
        {"transfers": [["server", "client/0", 500_000, 0.0], ["server", "client/1", 250_000, 0.0]]},
        {"transfers": [["client/0", "server", 250_000, 0.0], ["client/1", "server", 250_000, 0.0]]},
    ]
    found = carry(wired(topology, 2), phases)
    # One after the other, the links of each client and the server limit: 0.2 s each at 20 or 10 Mbit/s.
    assert all(end >= 0.2 + 0.01 - EARLY for phase in found[:1] for end in phase["ends"])
    assert found[1]["ends"][0] >= 0.2 + 0.01 - EARLY
    assert max(found[1]["ends"]) >= 500_000 * 8 / 24e6 + 0.01 - EARLY
    assert 0 <= found[0]["carried"]["server", "internet"] - 750_000 < 2_000
    assert 0 <= found[1]["carried"]["client/1", "internet"] - 250_000 < 2_000


@pytest.mark.full
def test_nothing_passes_in_an_outage_and_the_connection_stays():
    phase = {
        "transfers": [["server", "client/0", 200_000, 0.0]],
        "changes": [[0.05, "internet", "client/0", 0.0], [0.6, "internet", "client/0", 8e6]],
    }
    found = carry(wired(star(down=[8e6], up=[8e6]), 1), [phase, {"transfers": [["client/0", "server", 1000, 0.0]]}])
    # 0.2 s at 8 Mbit/s, of which at most 0.05 s and a packet come before the outage.
    assert found[0]["ends"][0] >= 0.6 + 0.15 - 2 * EARLY
    assert found[1]["ends"][0] > 0.0


@pytest.mark.full
def test_packets_follow_the_route_of_a_graph_in_each_direction():
    graph = nx.DiGraph()
    for source, target, latency in [
        ("server", "a", 0.0),
        ("a", "client/0", 0.0),
        ("client/0", "b", 0.0),
        ("b", "server", 0.0),
    ]:
        graph.add_edge(source, target, capacity=20e6, latency=latency)
    wiring = plan_wiring(GraphLinks(graph), [("server", "client/0")])
    phases = [{"transfers": [["server", "client/0", 100_000, 0.0], ["client/0", "server", 50_000, 0.0]]}]
    carried = carry(wiring, phases)[0]["carried"]
    assert {ends: round(count, -4) for ends, count in carried.items()} == {
        ("server", "a"): 100_000,
        ("a", "client/0"): 100_000,
        ("client/0", "b"): 50_000,
        ("b", "server"): 50_000,
    }


@pytest.mark.full
def test_a_dilation_slows_the_links_and_gives_the_scenarios_times():
    phase = {"transfers": [["server", "client/0", 100_000, 0.0]]}
    found = carry(wired(star(down=[8e6], up=[8e6], latency=0.02), 1), [phase], LinkSettings(dilation=5.0))
    assert found[0]["ends"][0] >= 0.1 + 0.02 - EARLY
