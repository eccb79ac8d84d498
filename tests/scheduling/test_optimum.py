"""The bound on the seconds of a round is never above those of a round that can be."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.scheduling.optimum import ClientCosts, least_seconds


def costs(down, between, up, *, rate=1.0, servers=(math.inf, math.inf)):
    """Costs whose seconds of transfer are those given, over links of 1 bit/s or, with ``servers``, behind them."""
    own = np.full(len(down), rate)
    return ClientCosts(
        np.array(down, float), own, np.zeros(len(down)), np.array(between, float), np.array(up, float), own, *servers
    )


@st.composite
def rounds(draw, clients):
    def numbers(low, high):
        return np.array(draw(st.lists(st.floats(low, high), min_size=clients, max_size=clients)))

    return ClientCosts(
        numbers(0.1, 2), numbers(0.2, 2), numbers(0, 1), numbers(0, 2), numbers(0.1, 2), numbers(0.2, 2),
        draw(st.floats(0.5, 4)), draw(st.floats(0.5, 4)),
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 5))
def test_the_bound_is_never_above_a_round_that_can_be(data, clients):
    drawn = data.draw(rounds(clients))
    required = data.draw(st.integers(1, min(3, clients)))
    best = min(_greedy(drawn, order) for order in itertools.permutations(range(clients), required))
    assert least_seconds(drawn, required) <= best * (1 + 1e-6)


def _greedy(drawn, order):
    """The makespan of one possible round: each client has both links to itself in turn, in this order."""
    downloaded = uploaded = 0.0
    for each in order:
        downloaded = max(downloaded, drawn.start[each]) + drawn.down_seconds[each]
        uploaded = max(uploaded, downloaded + drawn.between[each]) + drawn.up_seconds[each]
    return uploaded


def test_the_bound_counts_what_the_servers_links_must_carry():
    """Ten of forty equal clients: 1 s down alone, 2 s, and 10 bits up at 4 bit/s; 5 s alone would be 1 + 2 + 1."""
    equal = costs([1] * 40, [2] * 40, [1] * 40, servers=(math.inf, 4.0))
    assert least_seconds(equal, 10) == pytest.approx(1 + 2 + 10 / 4, rel=2e-4)
    turned = costs([1] * 40, [2] * 40, [1] * 40, servers=(4.0, math.inf))
    assert least_seconds(turned, 10) == pytest.approx(10 / 4 + 2 + 1, rel=2e-4)


def test_without_shared_links_the_bound_is_the_last_client_alone():
    four = costs([1, 2, 3, 4], [1, 1, 1, 5], [2, 1, 2, 1])
    assert least_seconds(four, 3) == pytest.approx(6.0)


def test_a_link_that_is_down_takes_no_part():
    down = ClientCosts(*[np.ones(2)] * 2, *[np.zeros(2)] * 2, np.ones(2), np.array([0.0, 1.0]))
    assert least_seconds(down, 2) == math.inf
    assert least_seconds(down, 1) == pytest.approx(2.0)
