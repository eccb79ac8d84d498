"""The bound on the seconds of a round is never above the shortest of all rounds, which an integer program finds."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.scheduling.optimum import ClientCosts, least_seconds

from .best_round import best_round


def costs(down, between, up, *, rate=1.0, servers=(math.inf, math.inf)):
    """Costs whose seconds of transfer are those given, over links of 1 bit/s or, with ``servers``, behind them."""
    own = np.full(len(down), rate)
    return ClientCosts(
        np.array(down, float), own, np.zeros(len(down)), np.array(between, float), np.array(up, float), own, *servers
    )


def one_after_another(order, down, between, up):
    """The makespan if one client after another has each link to itself."""
    downloaded = uploaded = 0.0
    for each in order:
        downloaded += down[each]
        uploaded = max(uploaded, downloaded + between[each]) + up[each]
    return uploaded


TENTHS = st.integers(1, 30).map(lambda number: number / 10)


@settings(max_examples=20, deadline=None)
@given(st.data(), st.integers(2, 4), TENTHS)
def test_behind_the_servers_links_it_is_the_best_flow_shop(data, clients, between):
    """With equal work between, some order is best in which each client has each link to itself (Johnson 1954)."""
    down, up = (data.draw(st.lists(TENTHS, min_size=clients, max_size=clients)) for _ in range(2))
    size = data.draw(st.integers(1, min(3, clients)))
    lag = [between] * clients
    best = min(one_after_another(order, down, lag, up) for order in itertools.permutations(range(clients), size))
    seconds, chosen = best_round(costs(down, lag, up, rate=10.0, servers=(1.0, 1.0)), size)
    assert seconds == pytest.approx(best, abs=1e-6)
    assert min(one_after_another(order, down, lag, up) for order in itertools.permutations(chosen)) == pytest.approx(
        best, abs=1e-6
    )


def test_a_round_that_highs_solves_only_without_presolve():
    each = [0.7, 0.6, 1.2, 1.1]
    best = min(one_after_another(order, each, [0.2] * 4, each) for order in itertools.permutations(range(4), 3))
    assert best_round(costs(each, [0.2] * 4, each, rate=10.0, servers=(1.0, 1.0)), 3)[0] == pytest.approx(best)


def test_two_uploads_share_a_link_as_their_own_limits_allow():
    """Both are ready at 2 s; 6 bits at 1 and 2 bit/s over 2.5 bit/s: by hand the 4 bits of the second take 2.4 s."""
    two = ClientCosts(
        np.zeros(2), np.ones(2), np.zeros(2), np.full(2, 2.0), np.array([2.0, 4.0]), np.array([1.0, 2.0]), server_up=2.5
    )
    assert best_round(two, 2)[0] == pytest.approx(4.4)


@st.composite
def rounds(draw, clients, same_start):
    def numbers(low, high):
        return np.array(draw(st.lists(st.floats(low, high), min_size=clients, max_size=clients)))

    start = np.zeros(clients) if same_start else numbers(0, 1)
    return ClientCosts(
        numbers(0.1, 2), numbers(0.2, 2), start, numbers(0, 2), numbers(0.1, 2), numbers(0.2, 2),
        draw(st.floats(0.5, 4)), draw(st.floats(0.5, 4)),
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 5), st.booleans())
def test_the_bound_is_never_above_the_optimum(data, clients, same_start):
    drawn = data.draw(rounds(clients, same_start))
    required = data.draw(st.integers(1, min(3, clients)))
    if same_start:
        best = best_round(drawn, required)[0]
    else:
        # The best round whose downloads begin late is no shorter than one whose downloads all begin at 0.
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


def test_without_shared_links_bound_and_optimum_are_the_last_client_alone():
    four = costs([1, 2, 3, 4], [1, 1, 1, 5], [2, 1, 2, 1])
    assert least_seconds(four, 3) == best_round(four, 3)[0] == pytest.approx(6.0)


def test_a_link_that_is_down_takes_no_part():
    down = ClientCosts(*[np.ones(2)] * 2, *[np.zeros(2)] * 2, np.ones(2), np.array([0.0, 1.0]))
    assert best_round(down, 1)[1] == (1,)
    assert (best_round(down, 2), least_seconds(down, 2)) == (None, math.inf)
    assert least_seconds(down, 1) == pytest.approx(2.0)
