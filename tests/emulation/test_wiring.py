"""The plan of real links follows the simulated network's routes exactly."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.emulation.wiring import plan_wiring
from edgefl.errors import UserError
from edgefl.network.topology import GraphLinks, router
from edgefl.network.tree import TreeLinks


def followed(wiring, source, target):
    """The nodes that a packet visits if each node sends it to its next hop."""
    nodes = [source]
    while nodes[-1] != target:
        here = nodes[-1]
        nodes.append(wiring.hops.get((here, source, target)) or wiring.hops[here, None, target])
    return tuple(nodes)


def link_of(wiring, *ends):
    return next(link for link in wiring.links if link.ends == ends)


def star_of(clients, **options):
    options = {"down": [8e6] * clients, "up": [1e6] * clients, "latency": 0.02, **options}
    return TreeLinks(server=(1e9, 5e8), **options)


@st.composite
def graphs(draw):
    """Strongly connected graphs with few different latencies, so that many paths are equal."""
    count = draw(st.integers(2, 7))
    ring = [(node, (node + 1) % count) for node in range(count)]
    more = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=14))
    graph = nx.DiGraph()
    for one, other in [*ring, *more]:
        if one != other:
            latency = draw(st.sampled_from([0.0, 0.01, 0.02]))
            graph.add_edge(f"n{one}", f"n{other}", capacity=1e6, latency=latency)
    nodes = sorted(graph.nodes)
    pairs = st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)).filter(lambda pair: pair[0] != pair[1])
    return graph, draw(st.lists(pairs, min_size=1, max_size=8))


@settings(max_examples=30)
@given(graphs())
def test_packets_visit_the_nodes_of_the_least_latency_path(drawn):
    graph, talks = drawn
    topology = GraphLinks(graph)
    wiring, route = plan_wiring(topology, talks), router(topology)
    for one, other in talks:
        for source, target in ((one, other), (other, one)):
            assert followed(wiring, source, target) == route(source, target).nodes
            assert [link.number for link in wiring.routes[source, target]] == list(route(source, target).links)


@settings(max_examples=30)
@given(graphs())
def test_each_link_lists_the_pairs_whose_paths_cross_it(drawn):
    graph, talks = drawn
    topology = GraphLinks(graph)
    pairs = {pair for one, other in talks for pair in ((one, other), (other, one))}
    for link in plan_wiring(topology, talks).links:
        assert set(link.pairs) == {pair for pair in pairs if link.number in topology.path(*pair)}
        assert topology.ends(link.number) == link.ends


def test_the_links_of_server_and_cells_are_shared_and_a_clients_own_are_not():
    cells = star_of(3, backhaul=[(1e8, 1e8)] * 2, cell=[0, 1, 0])
    wiring = plan_wiring(cells, [("server", f"client/{client}") for client in range(3)])
    shared = {link.ends for link in wiring.links if link.shared}
    assert shared == {("server", "internet"), ("internet", "server"), ("internet", "cell/0"), ("cell/0", "internet")}
    assert link_of(wiring, "cell/0", "client/2").pairs == (("server", "client/2"),)


def test_a_cell_that_averages_is_an_endpoint():
    cells = star_of(2, backhaul=[(1e8, 1e8)], cell=[0, 0])
    wiring = plan_wiring(cells, [("server", "cell/0"), ("cell/0", "client/0"), ("cell/0", "client/1")])
    assert wiring.nodes == ("server", "cell/0", "client/0", "client/1", "internet")
    assert not link_of(wiring, "internet", "cell/0").shared


def test_a_peak_is_that_of_the_topology_or_a_higher_one():
    ends = ("internet", "client/0")
    wiring = plan_wiring(star_of(1, down=[0.0]), [("server", "client/0")], peaks={ends: 5e6})
    link, other = link_of(wiring, *ends), link_of(wiring, "client/0", "internet")
    assert (link.capacity, link.peak, link.latency) == (0.0, 5e6, 0.02)
    assert (other.capacity, other.peak) == (1e6, 1e6)


def test_128_nodes_have_addresses_of_their_own_and_more_are_refused():
    wiring = plan_wiring(star_of(126), [("server", f"client/{client}") for client in range(126)])
    assert len(set(wiring.addresses.values())) == len(wiring.nodes) == 128
    with pytest.raises(UserError, match=r"at most 128 nodes .* found 129"):
        plan_wiring(star_of(127), [("server", f"client/{client}") for client in range(127)])
