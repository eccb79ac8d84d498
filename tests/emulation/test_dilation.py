"""The dilation follows from the packets that the links can carry at once."""

from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.emulation.dilation import USED_PART, PacketRates, choose_dilation, packet_rates
from edgefl.emulation.routing import Routing
from edgefl.emulation.wiring import LinkSettings, plan_wiring
from edgefl.errors import UserError
from edgefl.network.topology import GraphLinks
from edgefl.network.tree import TreeLinks

rates = st.floats(10.0, 1e7)


def star(clients, server, client, latency=0.02):
    topology = TreeLinks(server=(server, server), down=[client] * clients, up=[client] * clients, latency=latency)
    return plan_wiring(topology, [("server", f"client/{number}") for number in range(clients)])


@pytest.mark.parametrize(("clients", "busy"), [(1, 5e6), (9, 24e6)])
@pytest.mark.parametrize("dilation", [1.0, 10.0])
def test_a_star_carries_the_smaller_of_the_servers_and_all_clients_capacities(clients, busy, dilation):
    wiring, slow = star(clients, 24e6, 5e6), LinkSettings(dilation=dilation, efficiency=0.5)
    # Both directions, and half as many acknowledgements.
    packets = 2 * busy / 8 / 1448 * 0.5 / dilation
    found = packet_rates(wiring, slow)
    assert found.links == pytest.approx(2 * 1.5 * packets)  # each packet crosses two links
    segments = Routing(wiring, slow).segments("server")
    assert found.delayed == pytest.approx(packets / segments + packets / 2)


def test_links_without_latency_need_no_process():
    assert packet_rates(star(3, 24e6, 5e6, latency=0.0), LinkSettings()).delayed == 0.0


@settings(max_examples=15)
@given(rates, rates)
def test_the_dilation_is_the_least_of_its_series_that_is_enough(delayed, links):
    wiring, measured = star(2, 1e9, 2e8), PacketRates(delayed, links)
    found = choose_dilation(wiring, LinkSettings(), measured)
    series = [float(first * 10**power) for power in range(9) for first in (1, 2, 5)]

    def enough(factor):
        needed = packet_rates(wiring, LinkSettings(dilation=factor))
        return needed.delayed <= USED_PART * delayed and needed.links <= USED_PART * links

    assert enough(found.factor)
    assert found.factor == 1.0 or not enough(series[series.index(found.factor) - 1])
    assert f"dilation {found.factor:g}: at most" in str(found)


def test_a_route_without_a_finite_capacity_is_refused():
    graph = nx.DiGraph()
    for source, target in (("server", "client/0"), ("client/0", "server")):
        graph.add_edge(source, target, capacity=math.inf, latency=0.0)
    with pytest.raises(UserError, match="no link from server to client/0 has a finite capacity"):
        packet_rates(plan_wiring(GraphLinks(graph), [("server", "client/0")]), LinkSettings())
