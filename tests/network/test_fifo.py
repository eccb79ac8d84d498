"""One queue for all, and one stream for many."""

import math
from dataclasses import replace
from statistics import fmean, pstdev

import pytest
import simpy

from edgefl.network import FifoQueue, FlowNetwork, Transport, TreeLinks

CLIENTS = [f"client/{client}" for client in range(4000)]


def logarithms(queue):
    return [math.log(queue.weight("server", client, 0.0)) for client in CLIENTS]


@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_the_logarithm_of_a_weight_has_the_spread_and_the_tails_of_a_laplace_distribution(spread):
    drawn = logarithms(FifoQueue(0, spread))
    assert pstdev(drawn) == pytest.approx(spread, rel=0.05)
    assert abs(fmean(drawn)) < 0.05 * spread
    # P(|x| > 2 b) = exp(-2) with b = spread / sqrt(2).
    beyond = fmean(abs(each) > 2.0 * spread / math.sqrt(2.0) for each in drawn)
    assert beyond == pytest.approx(math.exp(-2.0), abs=0.02)


def test_without_spread_all_weights_are_1():
    assert set(logarithms(FifoQueue(0, 0.0))) == {0.0}


def test_draws_are_independent_and_draw_0_is_the_seeds_own():
    queue = FifoQueue(3)
    own, other = logarithms(queue), logarithms(replace(queue, draw=1))
    assert own == logarithms(FifoQueue(3))
    assert own != other
    correlation = fmean(a * b for a, b in zip(own, other, strict=True)) / (pstdev(own) * pstdev(other))
    assert abs(correlation) < 0.05


@pytest.mark.parametrize("draw", [0, 7])
def test_two_transfers_share_a_link_by_their_weights_until_the_first_ends(draw):
    env, queue = simpy.Environment(), FifoQueue(1, 1.0, draw)
    links = TreeLinks(server=(8e6, 8e6), down=[1e9, 1e9], up=[1e9, 1e9])
    network = FlowNetwork(env, links, transport=Transport(queue=queue))
    flows = [network.transfer("server", f"client/{client}", 5e6) for client in (0, 1)]
    env.run()
    weights = [queue.weight("server", f"client/{client}", 0.0) for client in (0, 1)]
    # 1 MB/s for both; the one with more weight ends first, long after the period in which it began.
    first = 5.0 * sum(weights) / max(weights)
    assert min(flow.ended for flow in flows) == pytest.approx(first, rel=1e-9)
    assert max(flow.ended for flow in flows) == pytest.approx(10.0, rel=1e-9)
    assert first > 5.0


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
