"""Averages among peers. Values: numpy 2.4.6 and networkx 3.6.1, float64, from the edge lists."""

import networkx as nx
import numpy as np
import pytest
import torch

from edgefl.simulation.protocols.peers.overlays import Shape, exchanges, spectral_gap, weights_of
from edgefl.training.job import PeerMixing
from edgefl.training.peer_models import PeerModels, mix
from edgefl.training.server_model import Outcome

RANDOM = [
    (0, 1),
    (0, 4),
    (1, 2),
    (1, 7),
    (2, 3),
    (2, 5),
    (3, 6),
    (3, 8),
    (4, 5),
    (4, 9),
    (5, 6),
    (6, 9),
    (7, 8),
    (7, 9),
]
RING = Shape(kind="ring").graph(5, 0)


@pytest.mark.parametrize(
    ("graph", "mixing", "gap"),
    [
        (RING, "metropolis", 0.460655337083368),
        (nx.path_graph(6), "uniform", 0.111994785084065),
        (nx.path_graph(6), "max_degree", 0.0893163974770408),
        (nx.Graph(RANDOM), "metropolis", 0.260131474586835),
        (Shape(kind="torus").graph(9, 0), "uniform", 0.6),
        (Shape(kind="exponential").graph(8, 0), "metropolis", 2 / 3),
    ],
)
def test_spectral_gaps_of_the_weights(graph, mixing, gap):
    weights = weights_of(graph.to_directed(), mixing)
    assert spectral_gap(weights) == pytest.approx(gap, abs=1e-12)
    assert weights.sum(axis=1) == pytest.approx(1.0, abs=1e-15)


def test_push_sum_over_a_directed_graph():
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (3, 0)])
    values, weights = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]]).double(), torch.ones(5).double()
    for _ in range(12):
        values, weights = mix(values, weights, PeerMixing(weights_of(graph, "push_sum"), push_sum=True))
    expected = [6.19002869237862, 6.23446678157154, 6.21717046492462, 6.18241705705228, 6.1724853605152]
    assert (values[:, 0] / weights).tolist() == pytest.approx(expected, abs=1e-12)
    assert float(values.sum()) == pytest.approx(31.0, abs=1e-12)


@pytest.mark.parametrize("after", [False, True])
def test_the_two_orders_are_those_of_the_papers(after):
    # f_i(x) = (x - b_i)² / 2 with one step of rate η: D-PSGD is x ← W x - η (x - b), local steps are W (x - η (x - b)).
    b, rate = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), 0.25
    weights = weights_of(RING, "metropolis")
    models, x = PeerModels("method", torch.zeros(1).double(), 5), np.zeros(5)
    for round in range(10):
        starts = models.sent.vector
        finals = [start - rate * (start - goal) for start, goal in zip(starts, b, strict=True)]
        arrived = {
            peer: Outcome(peer, final, round, rate, 1, 1, 0.0, 0.0, 0.0, final - starts[peer])
            for peer, final in enumerate(finals)
        }
        models.update(arrived, round, PeerMixing(weights, gradient_after=after))
        x = weights @ x - rate * (x - b) if after else weights @ (x - rate * (x - b))
    assert models.sent.vector[:, 0].tolist() == pytest.approx(x.tolist(), abs=1e-12)
    assert float(models.vector) == pytest.approx(x.mean(), abs=1e-12)


def test_pairs_are_a_matching_and_a_draw_of_the_round():
    graph = Shape(kind="complete").graph(6, 0)
    matchings = [sorted(exchanges(graph, "pairwise", 0, round).edges) for round in range(4)]
    assert all(len({here for here, _ in pairs}) == len(pairs) == 6 for pairs in matchings)
    assert matchings[0] == sorted(exchanges(graph, "pairwise", 0, 0).edges)
    assert len({tuple(each) for each in matchings}) > 1
