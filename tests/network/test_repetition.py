"""Years over looped traces: the same to nine digits as the closed form, and as living through every step."""

import networkx as nx
import pytest
import simpy

from edgefl.network import FlowNetwork, StepTrace, repetition
from edgefl.network.audit import audit_flows
from edgefl.network.audit_records import FlowRecord, Repetition


class Listener:
    """Remembers what was repeated."""

    def __init__(self):
        self.repeated = []

    def flow_started(self, flow):
        pass

    flow_ended = flow_cancelled = flow_started

    def capacity_changed(self, source, target, bits_per_second):
        pass

    def capacities_repeated(self, since, period, times):
        self.repeated.append((since, period, times))


def test_a_transfer_of_years_ends_where_the_integral_of_the_trace_says():
    env, listener = simpy.Environment(), Listener()
    graph = nx.DiGraph()
    graph.add_edge("a", "b", capacity=1.0, latency=0.25)
    network = FlowNetwork(env, graph, observer=listener)
    network.set_process("a", "b", StepTrace([0.0, 1.0, 3.0], [1.0, 0.0, 2.0], period=4.0))
    flow = network.transfer("a", "b", 37_500_000)
    env.run()
    # 3e8 bits at 3 in 4 s; the first loop lacks the 0.25 bits of the latency, which the last step brings at 2 bit/s.
    assert flow.ended == pytest.approx(4e8 + 0.25, rel=1e-12)
    assert len(listener.repeated) == 1
    assert listener.repeated[0][1:] == (4.0, pytest.approx(1e8, rel=1e-3))


def ends_with(patience, monkeypatch):
    monkeypatch.setattr(repetition, "_PATIENCE", patience)
    env, listener = simpy.Environment(), Listener()
    graph = nx.DiGraph()
    graph.add_edge("s", "m", capacity=9.0)
    trace = StepTrace([0.0, 1.0, 2.5], [2.0, 7.0, 0.5], period=3.0)
    network = FlowNetwork(env, graph_with_clients(graph), observer=listener)
    for client in range(4):
        network.set_process("m", client, trace.shifted(0.7 * client))
    flows = [network.transfer("s", client, 600 * (client + 1), weight=1.0 + client % 2) for client in range(4)]
    env.timeout(1_500.5).callbacks.append(lambda _: network.cancel(flows[0]))
    env.timeout(2_000.0).callbacks.append(lambda _: network.set_capacity("s", "m", 4.0))
    env.timeout(2_400.0).callbacks.append(lambda _: flows.append(network.transfer("s", 1, 300)))
    env.run()
    return [flow.ended for flow in flows], [flow.delivered for flow in flows], listener.repeated


def graph_with_clients(graph):
    for client in range(4):
        graph.add_edge("m", client, capacity=5.0, latency=0.1 * client)
    return graph


def test_skipping_periods_changes_nothing_for_flows_that_share_links(monkeypatch):
    every_step = ends_with(10**9, monkeypatch)
    skipping = ends_with(60, monkeypatch)
    assert not every_step[2]
    assert len(skipping[2]) >= 3
    assert skipping[0] == pytest.approx(every_step[0], rel=1e-10)
    assert skipping[1] == pytest.approx(every_step[1], rel=1e-9)


def test_traces_of_different_periods_are_lived_through(monkeypatch):
    monkeypatch.setattr(repetition, "_PATIENCE", 10)
    env, listener = simpy.Environment(), Listener()
    graph = nx.DiGraph([("a", "b", {"capacity": 1.0}), ("b", "c", {"capacity": 1.0})])
    network = FlowNetwork(env, graph, observer=listener)
    network.set_process("a", "b", StepTrace([0.0, 1.0], [1.0, 3.0], period=2.0))
    network.set_process("b", "c", StepTrace([0.0, 1.0], [2.0, 0.5], period=3.0))
    network.transfer("a", "c", 100)
    env.run()
    assert not listener.repeated


def test_the_audit_adds_what_was_not_told_and_misses_it_where_it_is_hidden(monkeypatch):
    monkeypatch.setattr(repetition, "_PATIENCE", 60)
    env, capacities = simpy.Environment(), [(0.0, ("s", "m"), 4.0)]
    listener = Listener()
    listener.capacity_changed = lambda source, target, rate: capacities.append((env.now, (source, target), rate))
    graph = nx.DiGraph()
    graph.add_edge("s", "m", capacity=4.0)
    network = FlowNetwork(env, graph_with_clients(graph), observer=listener)
    for client in range(4):
        network.set_process("m", client, StepTrace([0.0, 1.0, 2.5], [2.0, 7.0, 0.5], period=3.0, offset=0.7 * client))
    flows = [network.transfer("s", client, 400 * (client + 1)) for client in range(4)]
    env.run()
    records = [
        FlowRecord(
            flow=flow.id, path=(("s", "m"), ("m", flow.target)), bytes=flow.bytes, started=0.0, latency=flow.latency,
            ended=flow.ended, delivered=flow.bytes,
        )
        for flow in flows
    ]  # fmt: skip
    repeated = [
        Repetition(since, period, times, since + (times + 1) * period) for since, period, times in listener.repeated
    ]
    assert repeated
    assert audit_flows(capacities, records, repetitions=repeated) == []
    assert audit_flows(capacities, records)
