"""TCP as LV08 has it, and limits per connection."""

import networkx as nx
import pytest
import simpy
from pydantic import ValidationError

from edgefl.network import FlowNetwork, Transport, lv08
from edgefl.network.transport import TransportSpec

from .audit import Log


def path_graph(*links):
    graph = nx.DiGraph()
    for near, far, megabytes, latency in links:
        graph.add_edge(near, far, capacity=8e6 * megabytes, latency=latency)
    return graph


@pytest.mark.parametrize(("acknowledgements", "seconds"), [("shared", 0.996079), ("none", 0.954842)])
def test_lv08_gives_the_documented_case_of_simgrid(acknowledgements, seconds):
    env = simpy.Environment()
    transport = TransportSpec(kind="lv08", acknowledgements=acknowledgements).build()
    network = FlowNetwork(env, path_graph(("a", "b", 0.125, 0.01)), transport=transport)
    flow = network.transfer("a", "b", 100e3)
    env.run()
    assert flow.ended == pytest.approx(seconds, abs=5e-7)


def test_a_long_path_is_limited_by_its_window():
    env = simpy.Environment()
    network = FlowNetwork(env, path_graph(("a", "b", 1000, 0.1)), transport=lv08())
    flow = network.transfer("a", "b", 1e9)
    env.run(until=2)
    assert network.rate(flow) / 8 == pytest.approx(0.97 * 4194304 / 0.2)


def test_shares_fall_with_latency_and_with_thin_links_as_in_simgrids_own_test():
    # SimGrid's dog-bone: two flows over a bottleneck of 1 kB/s; penalties of 20.537 + 20.537e-6 * 2 s at first, and of
    # twice that for flow B once its last link has 20.537 s of latency, or 1 kB/s.
    for last_megabytes, last_latency in ((1000, 20.537), (0.001, 0.0)):
        env = simpy.Environment()
        graph = path_graph(("s1", "r1", 1000, 0), ("s2", "r1", 1000, 0), ("r1", "r2", 0.001, 0), ("r2", "c1", 1000, 0))
        graph.add_edge("r2", "c2", capacity=8e6 * last_megabytes, latency=last_latency)
        network = FlowNetwork(env, graph, transport=Transport(penalty_bytes=20537.0))
        flows = [network.transfer(f"s{k}", f"c{k}", 1e6) for k in (1, 2)]
        env.run(until=50)
        rates = [network.rate(flow) / 8 for flow in flows]
        assert sum(rates) == pytest.approx(1e3)
        assert rates[0] == pytest.approx(2 * rates[1], rel=1e-5)
        # Back to equal penalties when the capacity that weighs changes in mid-flow.
        if last_latency == 0.0:
            network.set_capacity("r2", "c2", 8e9)
            env.run(until=51)
            assert network.rate(flows[0]) == pytest.approx(network.rate(flows[1]))


def test_a_connection_gets_no_more_than_its_limit_and_others_get_the_rest():
    env = simpy.Environment()
    graph = path_graph(("a", "b", 10, 0), ("b", "c", 2, 0), ("b", "d", 100, 0))
    network = FlowNetwork(env, graph, transport=Transport(connection_limit=8e6 * 3))
    flows = [network.transfer("a", end, 1e9) for end in ("c", "d", "d", "d")]
    env.run(until=1)
    assert [network.rate(flow) / 8e6 for flow in flows] == pytest.approx([2, 8 / 3, 8 / 3, 8 / 3])
    network.cancel(flows[3])
    env.run(until=2)
    assert [network.rate(flow) / 8e6 for flow in flows[:3]] == pytest.approx([2, 3, 3])


def test_acknowledgements_belong_to_tcp():
    with pytest.raises(ValidationError, match="fluid"):
        TransportSpec(acknowledgements="shared")


@pytest.mark.parametrize("transport", [lv08(), lv08(acknowledgements="shared"), Transport(connection_limit=2e6)])
def test_the_audit_checks_flows_under_every_transport(transport):
    env = simpy.Environment()
    graph = path_graph(("s", "m", 1, 0.01), ("m", "a", 0.5, 0.03), ("m", "b", 2, 0.001), ("m", "c", 0.2, 0.02))
    log = Log(env)
    network = FlowNetwork(env, graph, observer=log, transport=transport)
    for end, size in (("a", 2e5), ("b", 4e5), ("c", 1e5), ("b", 3e4)):
        network.transfer("s", end, size)
    env.timeout(0.9).callbacks.append(lambda _: network.set_capacity("m", "a", 8e6))
    env.run()
    assert log.audit(network.topology, transport=transport) == []
    assert log.audit(network.topology)
