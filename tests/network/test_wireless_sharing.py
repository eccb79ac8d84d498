"""A cell's air, shared by rate or by time: closed forms, and behaviour beside wired bottlenecks."""

import json

import networkx as nx
import pytest
import simpy

from edgefl.errors import UserError
from edgefl.network import FlowNetwork, GraphLinks, NetworkSpec, TreeLinks, build_topology


def cell(sharing, rates, *, server=1e9, backhaul=1e9, cells=1):
    env = simpy.Environment()
    tree = TreeLinks(
        server=(server, server),
        down=rates,
        up=rates,
        backhaul=[(backhaul, backhaul)] * cells,
        cell=[client % cells for client in range(len(rates))],
        sharing=sharing,
    )
    return env, FlowNetwork(env, tree)


def rates_at(env, network, moment):
    env.run(until=moment)
    return [network.rate(flow) / 1e6 for flow in network.flows]


@pytest.mark.parametrize(
    ("sharing", "expected"), [("wired", [54, 6]), ("rate_fair", [5.4, 5.4]), ("airtime_fair", [27, 3])]
)
def test_a_fast_and_a_slow_station_share_the_air_as_the_closed_forms_say(sharing, expected):
    env, network = cell(sharing, [54e6, 6e6])
    for client in range(2):
        network.transfer("server", f"client/{client}", 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx(expected, rel=1e-12)


def test_up_and_down_and_other_cells_have_air_of_their_own():
    env, network = cell("rate_fair", [54e6, 54e6, 6e6], cells=2)
    network.transfer("server", "client/0", 1e9)
    network.transfer("client/0", "server", 1e9)
    network.transfer("server", "client/1", 1e9)
    network.transfer("server", "client/2", 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx([5.4, 54, 54, 5.4])


def test_a_station_alone_has_its_whole_rate_and_two_flows_of_one_client_share_it():
    env, network = cell("airtime_fair", [54e6, 6e6])
    network.transfer("server", "client/0", 1e9)
    network.transfer("server", "client/0", 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx([27, 27])


def test_air_that_a_backhaul_leaves_unused_goes_to_nobody():
    env, network = cell("rate_fair", [54e6, 6e6], backhaul=4e6)
    for client in range(2):
        network.transfer("server", f"client/{client}", 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx([2, 2])


def test_a_station_whose_rate_changes_or_fails_gives_the_others_another_share():
    env, network = cell("rate_fair", [54e6, 6e6])
    flows = [network.transfer("server", f"client/{client}", 1e9) for client in range(2)]
    env.run(until=1)
    network.set_capacity("cell/0", "client/1", 54e6)
    assert rates_at(env, network, 2) == pytest.approx([27, 27])
    network.set_capacity("cell/0", "client/1", 0)
    assert rates_at(env, network, 3) == pytest.approx([54, 0])
    network.set_capacity("cell/0", "client/1", 6e6)
    assert rates_at(env, network, 4) == pytest.approx([5.4, 5.4])
    assert flows[0].delivered * 8 == pytest.approx((5.4 + 27 + 54 + 5.4) * 1e6)
    assert flows[1].delivered * 8 == pytest.approx((5.4 + 27 + 0 + 5.4) * 1e6)


def test_airtime_shares_end_flows_when_the_closed_form_says():
    env, network = cell("airtime_fair", [54e6, 6e6])
    flows = [network.transfer("server", f"client/{client}", 3e6 / 8 * k) for client, k in ((0, 9), (1, 4))]
    env.run()
    # 27 and 3 Mbit/s until 1 s, when the first has its 27 Mbit; then the other's 9 Mbit alone at 6 Mbit/s.
    assert [flow.ended for flow in flows] == pytest.approx([1.0, 1.0 + 9 / 6], rel=1e-12)


def test_a_scenario_names_the_sharing_of_its_cells():
    spec = NetworkSpec.model_validate(
        {
            "topology": {
                "kind": "cells",
                "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"},
                "cells": 3,
                "backhaul": {"down": "100 Mbit/s", "up": "50 Mbit/s"},
                "sharing": "airtime_fair",
            },
            "links": {"lte": {"down": "30 Mbit/s", "up": "10 Mbit/s"}},
        }
    )
    topology = build_topology(spec.topology, spec.links, ["lte"] * 7)
    assert topology.airtime_fair
    assert topology.airs == 6
    assert topology.air(topology.client_links(7, up=True)[5]) == 2 * 2 + 1
    assert topology.air(topology.link("cell/2", "internet")) == -1


def graph_of(sharing, edges):
    """(source, target, capacity in Mbit/s, air or None) as a network."""
    graph = nx.DiGraph()
    for source, target, rate, air in edges:
        graph.add_edge(source, target, capacity=rate * 1e6, **({} if air is None else {"air": air}))
    env = simpy.Environment()
    return env, FlowNetwork(env, GraphLinks(graph, sharing=sharing))


@pytest.mark.parametrize(
    ("sharing", "alone", "both"), [("rate_fair", 4, [3, 3]), ("airtime_fair", 4, [2, 6]), ("wired", 6, [6, 12])]
)
def test_a_relay_that_receives_and_sends_on_one_channel_halves_it(sharing, alone, both):
    env, network = graph_of(sharing, [("a", "relay", 12, "x"), ("relay", "b", 6, "x"), ("a", "c", 12, "x")])
    network.transfer("a", "b", 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx([alone])  # 1 / (1/12 + 1/6), or the second link
    network.transfer("a", "c", 1e9)
    # Equal rates: x (1/12 + 1/6 + 1/12) = 1. Equal halves of the time: 4/2 and 12/2.
    assert rates_at(env, network, 0.2) == pytest.approx(both, rel=1e-12)


def test_one_name_for_both_directions_is_one_medium():
    edges = [("ap", "a", 10, "x"), ("a", "ap", 10, "x"), ("ap", "b", 10, "down"), ("b", "ap", 10, "up")]
    env, network = graph_of("rate_fair", edges)
    for source, target in (("ap", "a"), ("a", "ap"), ("ap", "b"), ("b", "ap")):
        network.transfer(source, target, 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx([5, 5, 10, 10])


@pytest.mark.parametrize("suffix", ["graphml", "json"])
def test_a_file_may_name_the_air_of_its_edges(tmp_path, suffix):
    graph = nx.DiGraph()
    for client, rate in enumerate((54e6, 6e6)):
        graph.add_edge("server", f"client/{client}", capacity=rate, air="wifi down")
        graph.add_edge(f"client/{client}", "server", capacity=rate, air="wifi up")
    file = tmp_path / f"wifi.{suffix}"
    if suffix == "json":
        file.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    else:
        nx.write_graphml(graph, file)
    link = {"down": "1 Mbit/s", "up": "1 Mbit/s"}
    spec = NetworkSpec.model_validate(
        {"topology": {"kind": "file", "file": str(file), "sharing": "airtime_fair"}, "links": {"wifi": link}}
    )
    env = simpy.Environment()
    network = FlowNetwork(env, build_topology(spec.topology, spec.links, ["wifi"] * 2))
    for client in range(2):
        network.transfer("server", f"client/{client}", 1e9)
        network.transfer(f"client/{client}", "server", 1e9)
    assert rates_at(env, network, 0.1) == pytest.approx([27, 27, 3, 3], rel=1e-12)


def test_sharing_of_air_needs_edges_that_have_some():
    with pytest.raises(UserError, match="expected edges with the name of their 'air'"):
        graph_of("rate_fair", [("a", "b", 1, None)])
