"""Many transfers of one payload: one flow on every link, per member what it would see of it."""

import itertools

import networkx as nx
import pytest
import simpy

from edgefl.network import FlowNetwork, Transport, TreeLinks
from edgefl.network.audit import audit_flows
from edgefl.network.audit_records import FlowRecord

MULTICAST = Transport(multicast=True)


def star(down, *, latency=0.0, server=8.0, transport=MULTICAST):
    env = simpy.Environment()
    links = TreeLinks(server=(server * 1e6,) * 2, down=[d * 1e6 for d in down], up=[1e6] * len(down), latency=latency)
    return env, FlowNetwork(env, links, transport=transport)


def test_transfers_of_one_payload_cross_the_shared_link_once_at_the_pace_of_the_slowest():
    env, network = star([8, 4, 16], latency=[0.1, 0.2, 0.3])
    flows = [network.transfer("server", f"client/{c}", 1e6, payload="model") for c in range(3)]
    other = network.transfer("server", "client/2", 1e6, payload="another")
    env.run(until=1)
    assert [network.rate(flow) / 1e6 for flow in (*flows, other)] == pytest.approx([4, 4, 4, 4])
    env.run()
    assert [flow.ended for flow in flows] == pytest.approx([0.3 + 2.0] * 3)
    assert [flow.delivered for flow in flows] == [1e6] * 3


def test_without_the_option_and_for_payloads_of_ones_own_nothing_is_shared():
    for transport, payload in ((Transport(), "model"), (MULTICAST, None)):
        env, network = star([8, 8], transport=transport)
        flows = [network.transfer("server", f"client/{c}", 1e6, payload=payload) for c in range(2)]
        env.run()
        assert [flow.ended for flow in flows] == pytest.approx([2.0, 2.0])
        assert flows[0].multicast is None


def test_who_comes_later_is_sent_its_own():
    env, network = star([8, 8])
    flows = [network.transfer("server", "client/0", 1e6, payload="model")]
    env.timeout(0.5).callbacks.append(
        lambda _: flows.append(network.transfer("server", "client/1", 1e6, payload="model"))
    )
    env.run()
    assert [flow.ended for flow in flows] == pytest.approx([1.5, 2.0])


def test_a_member_that_leaves_takes_its_slow_link_with_it():
    env, network = star([8, 1])
    flows = [network.transfer("server", f"client/{c}", 1e6, payload="model") for c in range(2)]
    env.timeout(4.0).callbacks.append(lambda _: network.cancel(flows[1]))
    env.run()
    assert flows[0].ended == pytest.approx(4.0 + 0.5)
    assert flows[1].cancelled
    assert flows[1].delivered == pytest.approx(0.5e6)
    assert not network.flows


def test_members_may_leave_before_the_first_byte_flows():
    env, network = star([8, 1], latency=[0.1, 0.4])
    flows = [network.transfer("server", f"client/{c}", 1e6, payload="model") for c in range(2)]
    env.timeout(0.2).callbacks.append(lambda _: network.cancel(flows[1]))
    env.run()
    assert flows[0].ended == pytest.approx(0.4 + 1.0)
    assert flows[1].delivered == 0


@pytest.mark.parametrize("leaves", [None, 0.2, 1.0])
def test_the_audit_follows_a_multicast_whose_member_leaves(leaves):
    edges = {("s", "m"): 8e6, ("m", "a"): 4e6, ("m", "n"): 6e6, ("n", "b"): 1e6, ("n", "c"): 3e6}
    graph = nx.DiGraph()
    for (source, target), capacity in edges.items():
        graph.add_edge(source, target, capacity=capacity, latency=0.1)
    env = simpy.Environment()
    network = FlowNetwork(env, graph, transport=MULTICAST)
    together = [network.transfer("s", end, 1e6, payload="model") for end in ("a", "b", "c")]
    rival = network.transfer("s", "c", 2e6)
    if leaves is not None:
        env.timeout(leaves).callbacks.append(lambda _: network.cancel(together[1]))
    env.run()
    path = [("s", "m"), ("m", "a"), ("m", "n"), ("n", "b"), ("n", "c")]
    gone = (("n", "b"),)
    early = leaves is not None and leaves < 0.3
    group = FlowRecord(
        flow=0, path=tuple(link for link in path if not (early and link in gone)), bytes=1e6, started=0.0, latency=0.3,
        ended=together[0].ended, delivered=1e6, pruned=((leaves, gone),) if leaves is not None and not early else (),
    )  # fmt: skip
    single = FlowRecord(
        flow=1, path=tuple(itertools.pairwise("smnc")), bytes=2e6, started=0.0, latency=0.3, ended=rival.ended
    )
    capacities = [(0.0, link, capacity) for link, capacity in edges.items()]
    assert audit_flows(capacities, [group, single]) == []
    hasty = FlowRecord(**{**vars(group), "ended": group.ended * 0.999})
    assert audit_flows(capacities, [hasty, single])
