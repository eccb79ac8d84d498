"""Flows end when the fluid model says so: hand-computed cases, SimGrid's cases, outages, latency, cancellation."""

import json
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import simpy

from edgefl.errors import UserError
from edgefl.network import FlowNetwork, TreeLinks

MEGABYTE = 1e6


def star(server_mb: float, access_mb: list[float], latency: float = 0.0) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_edge("server", "internet", capacity=8e6 * server_mb)
    for client, capacity in enumerate(access_mb):
        graph.add_edge("internet", f"client/{client}", capacity=8e6 * capacity, latency=latency)
    return graph


def at(env: simpy.Environment, seconds: float, action) -> None:
    env.timeout(seconds).callbacks.append(lambda _: action())


def test_three_flows_on_one_bottleneck_end_as_computed_by_hand():
    env = simpy.Environment()
    network = FlowNetwork(env, star(10, [100, 4, 100]))
    flows = []
    for client, (size, start) in enumerate([(10, 0), (10, 0), (5, 1)]):
        at(env, start, lambda c=client, s=size: flows.append(network.transfer("server", f"client/{c}", s * MEGABYTE)))
    env.run()
    assert [flow.ended for flow in flows] == pytest.approx([2.2, 2.7, 2.3 + 2 / 30], rel=1e-9)


@pytest.mark.parametrize(("later_mb", "end"), [(2.0, 2.0), (0.5, 5.0)])
@pytest.mark.parametrize("with_company", [False, True])
def test_a_capacity_change_in_mid_flow_counts_from_that_moment(later_mb, end, with_company):
    env = simpy.Environment()
    graph = star(1, [100, 100])
    share = 2 if with_company else 1
    network = FlowNetwork(env, graph)
    flows = [network.transfer("server", f"client/{c}", 3 * MEGABYTE / share) for c in range(share)]
    at(env, 1.0, lambda: network.set_capacity("server", "internet", later_mb * 8e6))
    env.run()
    assert [flow.ended for flow in flows] == pytest.approx([end] * share, rel=1e-9)


def simgrid_cases() -> list:
    root = os.environ.get("EDGEFL_DATA")
    if root is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason="EDGEFL_DATA is not set: SimGrid's cases are there"))]
    cases = json.loads((Path(root) / "traces/derived/simgrid_maxmin_cases.json").read_text())["cases"]
    return [pytest.param(case, id=f"seed {case['seed']}") for case in cases]


def graph_of_chains(case: dict) -> tuple[nx.DiGraph, list[tuple[str, str]], dict[str, tuple[str, str]]]:
    """A graph in which each flow's list of links is the only path between two nodes of its own.

    A link becomes an edge ``link/in -> link/out``; edges without a limit lead from one to the next.
    """
    graph = nx.DiGraph()
    edges = {name: (f"{name}/in", f"{name}/out") for name in case["links"]}
    for name, capacity in case["links"].items():
        graph.add_edge(*edges[name], capacity=8.0 * capacity)
    ends = []
    for flow in case["flows"]:
        for near, far in zip(flow["links"], flow["links"][1:], strict=False):
            graph.add_edge(f"{near}/out", f"{far}/in", capacity=float("inf"))
        ends.append((f"{flow['links'][0]}/in", f"{flow['links'][-1]}/out"))
    return graph, ends, edges


@pytest.mark.parametrize("case", simgrid_cases())
def test_every_completion_equals_that_of_simgrid(case):
    env = simpy.Environment()
    graph, ends, edges = graph_of_chains(case)
    network = FlowNetwork(env, graph)
    flows = [None] * len(ends)

    def start(number: int) -> None:
        flows[number] = network.transfer(*ends[number], case["flows"][number]["size"])

    for number, flow in enumerate(case["flows"]):
        at(env, flow["start"], lambda n=number: start(n))
    for link, steps in case.get("profiles", {}).items():
        for seconds, capacity in steps:
            at(env, seconds, lambda e=edges[link], c=capacity: network.set_capacity(*e, 8.0 * c))
    env.run()
    assert [flow.ended for flow in flows] == pytest.approx(case["completion"], rel=1e-9)


def test_an_outage_stalls_flows_which_go_on_where_they_stopped():
    env = simpy.Environment()
    network = FlowNetwork(env, star(2, [4, 0.5]))
    flows = [network.transfer("server", f"client/{c}", 2 * MEGABYTE) for c in range(2)]
    at(env, 1.0, lambda: network.set_capacity("server", "internet", 0))
    at(env, 2.0, lambda: network.set_capacity("internet", "client/1", 0))
    at(env, 3.0, lambda: network.set_capacity("server", "internet", 16e6))
    at(env, 7.0, lambda: network.set_capacity("internet", "client/1", 4e6))
    env.run(until=2.5)
    assert [flow.delivered for flow in flows] == pytest.approx([1.5 * MEGABYTE, 0.5 * MEGABYTE])
    assert [network.rate(flow) for flow in flows] == [0.0, 0.0]
    env.run()
    # 1.5 MB/s until 1 s, then nothing until 3 s, then the whole server link: 0.5 MB at 2 MB/s.
    assert flows[0].ended == pytest.approx(3.25, rel=1e-9)
    assert flows[1].ended == pytest.approx(7 + 1.5 / 0.5, rel=1e-9)


def test_a_flow_takes_no_bandwidth_until_the_latency_of_its_path_has_passed():
    env = simpy.Environment()
    graph = star(1, [100, 100], latency=0.5)
    graph["server"]["internet"]["latency"] = 0.25
    network = FlowNetwork(env, graph)
    first = network.transfer("server", "client/0", 1 * MEGABYTE)
    later = []
    at(env, 0.5, lambda: later.append(network.transfer("server", "client/1", 1 * MEGABYTE)))
    env.run()
    # Alone from 0.75 to 1.25 s, then halves.
    assert first.ended == pytest.approx(0.75 + 0.5 + 1.0, rel=1e-9)
    assert later[0].ended == pytest.approx(1.25 + 1.0 + 0.5, rel=1e-9)


def test_a_cancelled_flow_frees_its_share_and_never_triggers():
    env = simpy.Environment()
    network = FlowNetwork(env, star(2, [100, 100]))
    flows = [network.transfer("server", f"client/{c}", 4 * MEGABYTE) for c in range(2)]
    at(env, 1.0, lambda: network.cancel(flows[0]))
    env.run()
    assert (flows[0].ended, flows[0].delivered, flows[0].cancelled) == (1.0, pytest.approx(1 * MEGABYTE), True)
    assert not flows[0].triggered
    assert flows[1].ended == pytest.approx(1 + 3 / 2, rel=1e-9)
    network.cancel(flows[1])
    assert flows[1].cancelled is False


def test_an_empty_transfer_takes_the_latency_and_one_to_oneself_takes_nothing():
    env = simpy.Environment()
    network = FlowNetwork(env, star(2, [100], latency=0.125))
    flows = [network.transfer("server", "client/0", 0), network.transfer("server", "server", 5)]
    env.run()
    assert [flow.ended for flow in flows] == [0.125, 0.0]


def test_flows_share_in_proportion_to_their_weights():
    env = simpy.Environment()
    network = FlowNetwork(env, star(4, [100, 100, 0.5]))
    flows = [network.transfer("server", f"client/{c}", 6 * MEGABYTE, weight=w) for c, w in enumerate([1, 2.5, 9])]
    env.run(until=1.0)
    assert [network.rate(flow) / 8e6 for flow in flows] == pytest.approx([1.0, 2.5, 0.5])


def test_links_as_arrays_give_the_same_ends_as_the_graph_they_stand_for():
    rates = [(3e6 + 1e5 * c, 2e6 + 3e5 * c) for c in range(12)]
    tree = TreeLinks(
        server=(2e7, 1e7),
        down=[r[0] for r in rates],
        up=[r[1] for r in rates],
        latency=0.02,
        backhaul=[(9e6, 5e6), (3e7, 3e7), (1e6, 9e6)],
        cell=[c % 3 for c in range(12)],
    )
    graph = nx.DiGraph()
    for link in range(len(tree.capacity)):
        graph.add_edge(*tree.ends(link), capacity=tree.capacity[link], latency=tree.latency[link])
    ends = []
    for topology in (tree, graph):
        env = simpy.Environment()
        network = FlowNetwork(env, topology)
        flows = [network.transfer("server", f"client/{c}", 1e5 * (c + 1)) for c in range(12)]
        flows += [network.transfer(f"client/{c}", "server", 2e5 * (c + 1)) for c in range(12)]
        flows.append(network.transfer("client/0", "client/3", 1e5))
        flows.append(network.transfer("client/0", "client/1", 1e5))
        env.run()
        ends.append([flow.ended for flow in flows])
        for link in range(len(tree.capacity)):
            assert tree.link(*tree.ends(link)) == link
    assert ends[0] == pytest.approx(ends[1], rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda n: n.transfer("server", "client/7", 1), UserError, "client/0"),
        (lambda n: n.transfer("client/0", "server", 1), UserError, "no path"),
        (lambda n: n.transfer("server", "client/0", -1), ValueError, "-1"),
        (lambda n: n.set_capacity("server", "client/0", 1), UserError, "no link"),
        (lambda n: n.set_capacity("server", "internet", -1), UserError, "at least 0"),
    ],
)
def test_wrong_calls_are_refused_with_a_reason(call, error, message):
    network = FlowNetwork(simpy.Environment(), star(1, [1]))
    with pytest.raises(error, match=message):
        call(network)


def test_an_observer_hears_of_flows_and_of_the_capacities_that_they_meet():
    class Notes:
        def __init__(self):
            self.rows = []

        def flow_started(self, flow):
            self.rows.append((env.now, "start", flow.id))

        def flow_ended(self, flow):
            self.rows.append((env.now, "end", flow.id))

        def flow_cancelled(self, flow):
            self.rows.append((env.now, "cancel", flow.id))

        def capacity_changed(self, link, source, target, bits_per_second):
            self.rows.append((env.now, source, target, bits_per_second))

    env = simpy.Environment()
    notes = Notes()
    network = FlowNetwork(env, star(1, [2, 2]), observer=notes)
    network.set_capacities(np.array([1, 2]), np.array([8e6, 4e6]))
    network.transfer("server", "client/0", MEGABYTE)
    at(env, 0.5, lambda: network.set_capacities(np.array([1, 2]), np.array([4e6, 2e6])))
    env.run()
    assert notes.rows == [
        (0, "start", 0),
        (0, "server", "internet", 8e6),
        (0, "internet", "client/0", 8e6),
        (0.5, "internet", "client/0", 4e6),
        (1.5, "end", 0),
    ]


def test_a_link_that_never_falls_idle_keeps_small_flows_exact():
    env = simpy.Environment()
    network = FlowNetwork(env, star(1, [100, 100, 100]))
    network.transfer("server", "client/0", 1e12)
    spans = []

    def sender():
        for size in [1e9, 1e3] * 300:
            begun = env.now
            yield network.transfer("server", "client/1", size)
            spans.append((env.now - begun) / (2 * size / MEGABYTE))

    env.run(until=env.process(sender()))
    # At 3e5 s the clock itself resolves 6e-11 s, 3e-8 of the small flows' 2 ms.
    assert spans[::2] == pytest.approx([1.0] * 300, rel=1e-9)
    assert spans[1::2] == pytest.approx([1.0] * 300, rel=5e-8)
