"""Max-min fair rates: the order of starts has no say, and the textbook's levels; the audit checks random networks."""

import math

import networkx as nx
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.network import FlowNetwork
from edgefl.network.bundle import DemandCurve
from edgefl.network.fairness import fair_levels

RATES = st.one_of(st.sampled_from([1e6, 2e6, 3e6]), st.floats(1e5, 1e7))


@st.composite
def scenes(draw):
    """A small random mesh (a ring with chords, so that paths differ) and flows over it."""
    nodes = draw(st.integers(3, 7))
    graph = nx.DiGraph()
    for near in range(nodes):
        graph.add_edge(near, (near + 1) % nodes, capacity=draw(RATES), latency=0.0)
    for _ in range(draw(st.integers(0, 8))):
        near, far = draw(st.integers(0, nodes - 1)), draw(st.integers(0, nodes - 1))
        if near != far:
            graph.add_edge(near, far, capacity=draw(RATES), latency=0.0)
    flow = st.tuples(
        st.integers(0, nodes - 1),
        st.integers(0, nodes - 1),
        st.sampled_from([1e4, 5e4, 1e5, 3e5]),
        st.sampled_from([1.0, 1.0, 1.0, 0.5, 3.0]),
        st.sampled_from([0.0, 0.0, 0.1, 0.25]),
    ).filter(lambda f: f[0] != f[1])
    return graph, draw(st.lists(flow, min_size=1, max_size=14))


def started(graph, flows, env):
    network = FlowNetwork(env, graph)
    running = [None] * len(flows)

    def begin(number):
        source, target, size, weight, _ = flows[number]
        running[number] = network.transfer(source, target, size, weight=weight)

    for number, flow in enumerate(flows):
        env.timeout(flow[4]).callbacks.append(lambda _, n=number: begin(n))
    return network, running


@given(scenes(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_in_which_flows_are_started_at_one_instant_has_no_say(scene, shuffler):
    graph, flows = scene
    order = list(range(len(flows)))
    shuffler.shuffle(order)
    ends = []
    for sequence in (flows, [flows[k] for k in order]):
        env = simpy.Environment()
        _, running = started(graph, sequence, env)
        env.run()
        ends.append([flow.ended for flow in running])
    assert [ends[0][k] for k in order] == pytest.approx(ends[1], rel=1e-9)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 5)), max_size=400), st.floats(0, 120), st.data())
@settings(max_examples=30, deadline=None)
def test_a_demand_curve_sums_what_its_flows_ask(items, level, data):
    curve = DemandCurve()
    flows = {}
    for number, (threshold, weight) in enumerate(items):
        curve.add(threshold, number, load=threshold * weight, slope=weight)
        flows[number] = (threshold, weight)
    gone = data.draw(st.integers(0, len(items)))
    for number in sorted(flows, key=lambda n: (n * 7919) % 401)[:gone]:
        curve.remove(flows.pop(number)[0], number)
    load, slope = curve.at(level)
    assert load + slope * level == pytest.approx(sum(min(t, level) * w for t, w in flows.values()), rel=1e-9, abs=1e-9)
    assert sorted(curve.between(level / 2, level)) == [n for n, (t, _) in flows.items() if level / 2 < t <= level]


class _Flows:
    """A group in which every flow may have a cap of its own."""

    def __init__(self, links, caps):
        self.links, self.caps, self.level = links, caps, 0.0

    def demand(self, link, level):
        return sum(c for c in self.caps if c <= level), float(sum(c > level for c in self.caps))


def test_levels_of_the_textbook_network():
    groups = [_Flows(("a", "b"), [math.inf]), _Flows(("a",), [math.inf]), _Flows(("b",), [math.inf, 0.25])]
    assert fair_levels({"a": 1.0, "b": 9.0}, groups) == [0.5, 0.5, 8.25]
    assert fair_levels({"a": 1.0}, [_Flows(("a",), [0.25, 0.5])]) == [math.inf]
    assert fair_levels({"a": 0.0}, [_Flows(("a",), [1.0, math.inf])]) == [0.0]
