"""The dilation follows from the packets that the links can carry at once."""

from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.emulation.dilation import USED_PART, PacketRates, dilation_for, packet_rates
from edgefl.emulation.shaping import segments
from edgefl.emulation.wiring import plan_wiring
from edgefl.errors import UserError
from edgefl.network.topology import GraphLinks
from edgefl.network.tree import TreeLinks

rates = st.floats(1.0, 1e9)


def star(clients, server, client, latency=0.02):
    topology = TreeLinks(server=(server, server), down=[client] * clients, up=[client] * clients, latency=latency)
    return plan_wiring(topology, [("server", f"client/{number}") for number in range(clients)])


@pytest.mark.parametrize(("clients", "busy"), [(1, 5e6), (4, 20e6), (9, 24e6)])
def test_a_star_carries_the_smaller_of_the_servers_and_all_clients_capacities(clients, busy):
    # Both directions; packets of 1448 bytes, one by one at these rates, and half as many acknowledgements.
    packets = 2 * busy / 8 / 1448 * 1.5
    found = packet_rates(star(clients, 24e6, 5e6))
    assert found.delayed == pytest.approx(packets)
    assert found.links == pytest.approx(2 * packets)  # each crosses two links


def test_links_without_latency_need_no_process():
    assert packet_rates(star(3, 24e6, 5e6, latency=0.0)).delayed == 0.0
    assert packet_rates(star(3, 24e6, 5e6), kernel_delays=True).delayed == 0.0


def test_packets_that_are_sent_as_one_count_once():
    found = packet_rates(star(1, 1e9, 2e8))
    assert found.delayed == pytest.approx(2 * 2e8 / 8 / 1448 * 1.5 / segments(2.5e7))


@given(rates, rates, rates, rates)
def test_the_dilation_is_the_least_of_its_series_that_is_enough(delayed, links, delayed_measured, links_measured):
    found = dilation_for(PacketRates(delayed, links), PacketRates(delayed_measured, links_measured))
    used = max(delayed / delayed_measured, links / links_measured) / USED_PART
    assert used <= found.factor
    digit = found.factor / 10 ** math.floor(math.log10(found.factor) + 0.01)
    before = {1: found.factor / 2, 2: found.factor / 2, 5: found.factor / 2.5}[round(digit)]
    assert found.factor == 1.0 or used > before


def test_a_route_without_a_finite_capacity_is_refused():
    graph = nx.DiGraph()
    for source, target in (("server", "client/0"), ("client/0", "server")):
        graph.add_edge(source, target, capacity=math.inf, latency=0.0)
    with pytest.raises(UserError, match="no link from server to client/0 has a finite capacity"):
        packet_rates(plan_wiring(GraphLinks(graph), [("server", "client/0")]))
