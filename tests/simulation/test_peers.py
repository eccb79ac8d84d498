"""Rounds without a server: who waits for whom, over shared links."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.simulation.protocols.peers.overlays import Drawn

UP = [1250000, 625000, 2500000, 312500, 1000000]
DOWN = [6250000, 2500000, 5000000, 1250000, 3750000]
COMPUTE = [2.0, 2.5, 1.0, 9.0, 3.0]


def star(peers):
    """Links of so many bytes a second for a model of 4 MB, as bit/s for the fixture's model of 1 MB."""
    graph = nx.DiGraph([("server", "internet"), ("internet", "server")], capacity=1e12)
    nx.set_edge_attributes(graph, 1e12, "capacity")
    for peer in range(peers):
        graph.add_edge(f"client/{peer}", "internet", capacity=2 * UP[peer])
        graph.add_edge("internet", f"client/{peer}", capacity=2 * DOWN[peer])
    return graph


@pytest.fixture
def peers(run):
    def make(count, protocol, **others):
        seconds = SimpleNamespace(of=lambda round: np.array(COMPUTE[:count]))
        options = {"rates": [1.0] * count, "topology": star(count), "seconds": seconds, **others}
        return run(protocol={"kind": "gossip", **protocol}, **options)

    return make


def ends(result, count):
    """When each peer ended each round: its wait for others is logged then."""
    found = [[] for _ in range(count)]
    for event in result.of("idle"):
        found[event.client].append(event.time)
    return found


def test_rounds_wait_for_neighbours_only_as_in_simgrid(peers):
    # SimGrid 4.1, network/optim:Full: rounds of D-PSGD, compute, send to all neighbours at once, wait for theirs.
    ring = peers(5, {}, rounds=4)
    expected = [
        [19.7, 60.2, 71.2, 120.4],
        [8.4, 53.0571428571, 68.6, 113.257142857],
        [49.2, 60.2, 109.4, 120.4],
        [11.0, 60.2, 71.2, 120.4],
        [49.2, 60.2, 109.4, 120.4],
    ]
    assert np.array(ends(ring, 5)) == pytest.approx(np.array(expected), rel=1e-9)
    assert [row.seconds for row in ring.outcome.rows] == pytest.approx(np.max(expected, axis=0), rel=1e-9)
    both = peers(4, {"neighbours": "complete", "waits": "received_and_sent"}, rounds=3)
    assert np.array(ends(both, 4)) == pytest.approx(np.array([[47.4, 94.8, 142.2]] * 4), rel=1e-9)
    # Each device sends and receives: a model on a hop is charged to both.
    assert both.outcome.spent["bytes_up"] == both.outcome.spent["bytes_down"] == 3 * 12 * 1_000_000


def test_an_all_reduce_takes_the_steps_of_simgrid(run):
    seconds = SimpleNamespace(of=lambda round: np.zeros(5))
    result = run(rates=[1.0] * 5, topology=star(5), seconds=seconds, protocol={"kind": "ring_all_reduce"}, rounds=1)
    steps = [[] for _ in range(5)]
    for step in range(8):
        for peer in range(5):
            sent = result.of("transfer_end", client=peer)[step].time
            received = result.of("reception", client=peer)[step].time
            steps[peer].append(max(sent, received))
    expected = [
        [0.8, 3.36, 5.92, 8.48, 11.04, 13.6, 16.16, 18.72],
        [1.28, 2.56, 4.0, 6.56, 9.12, 11.68, 14.24, 16.8],
        [1.28, 2.56, 3.84, 5.28, 7.84, 10.4, 12.96, 15.52],
        [2.56, 5.12, 7.68, 10.24, 12.8, 15.36, 17.92, 20.48],
        [2.56, 5.12, 7.68, 10.24, 12.8, 15.36, 17.92, 20.48],
    ]
    assert np.array(steps) == pytest.approx(np.array(expected), rel=1e-9)
    assert result.outcome.spent["bytes_up"] == 5 * 1_600_000


def test_a_peer_that_is_away_is_not_waited_for_and_joins_its_neighbours(peers):
    crash = {"kind": "crash", "client": 3, "at": 5.0, "duration": 20.0}  # while it computes; its neighbours are 2 and 4
    result = peers(5, {"waits": "received_and_sent"}, rounds=4, failures=[crash])
    rounds = [[event.round for event in result.of("compute_start", client=peer)] for peer in range(5)]
    back = rounds[3][1]
    begun = [event.time for peer in (2, 4) for event in result.of("compute_start", client=peer, round=back)]
    assert rounds[3] == [1, *range(back, 5)]
    assert back > 2
    assert min(begun) >= result.of("compute_start", client=3, round=back)[0].time == 25.0
    # Weights of what does not arrive go to the receiver: rows still sum to 1.
    first = result.learner.mixings[0]
    assert {(2, 3), (3, 2), (3, 4), (4, 3)} == set(first.missing)
    assert first.weights.sum(axis=1) == pytest.approx(1.0)
    assert first.weights[3].tolist() == [0, 0, 0, 1, 0]
    assert first.weights[2, 2] == pytest.approx(2 / 3)


def test_a_deadline_ends_the_wait_and_push_sum_keeps_what_is_late_with_its_sender(peers):
    result = peers(
        4, {"neighbours": {"kind": "ring", "directed": True}, "mixing": "push_sum", "deadline": 7.0}, rounds=2
    )
    # Peer 3 computes for 9 s, and 0 does not wait for it; 1 ends at 2 + 3.2 s, 2 and 3 would wait longer.
    assert [found[0] for found in ends(result, 4)] == pytest.approx([7.0, 5.2, 7.0, 9.0], rel=1e-5)
    weights = result.learner.mixings[0].weights
    assert weights.sum(axis=0) == pytest.approx(1.0)
    assert weights[3, 3] == 1.0
    assert weights[1, 0] == 0.5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "protocol",
    [
        {"kind": "ring_all_reduce", "retries": 1},
        {"exchange": "pairwise", "neighbours": "complete"},
        {"exchange": "one_random", "mixing": "push_sum", "deadline": 12.0},
    ],
)
def test_bytes_are_conserved_whatever_fails(peers, protocol, seed):
    # The fixture checks the laws of every log: what is sent is received, and jobs have their bytes.
    draws = np.random.default_rng(seed).uniform(1, 40, (3, 2))
    crashes = [
        {"kind": "crash", "client": place, "at": at, "duration": lasts} for place, (at, lasts) in enumerate(draws)
    ]
    options = {"fleet": {"dropout": (0.3,)}, "timeouts": {"connection": None, "transfer": 14.0}}
    result = peers(5, protocol, rounds=5, failures=crashes, **options)
    assert (result.outcome.reason, result.outcome.rounds) == ("rounds", 5)
    assert result.of("lost")
    assert result.of("dropout")


@pytest.mark.parametrize(("k", "peers", "also"), [(4, 4, ""), (7, 6, ""), (3, 5, "an even number")])
def test_a_graph_that_does_not_exist_is_refused_in_edgefls_words(k, peers, also):
    with pytest.raises(UserError, match=rf"neighbours\.k: expected fewer than {peers} neighbours.*{also}.*found {k}$"):
        Drawn(kind="k_regular", k=k).graph(peers, seed=0)
