"""One queue for all: each flow keeps a drawn weight in max-min sharing."""

from __future__ import annotations

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
