"""The bound on the seconds of a round is never above those of a round that can be."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError, WrongAnswer
from edgefl.scheduling.bandwidth.base import Transfers, bandwidth, checked_order
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


def transfers(left, *, alone=1.0, up=True, after=0.0, deadline=math.inf, now=0.0, bytes=None):
    """Transfers with these bytes left; other facts are one value for all, or one for each."""
    count = len(left)
    facts = [
        np.broadcast_to(np.asarray(each, float), count) for each in (left if bytes is None else bytes, left, alone)
    ]
    more = [np.broadcast_to(np.asarray(each, float), count) for each in (after, deadline)]
    return Transfers(now, *facts, np.broadcast_to(np.asarray(up, bool), count), *more)


def ranks(kind, *args, **facts):
    return bandwidth(kind).order(transfers(*args, **facts)).rank.tolist()


def test_equal_and_proportional_shares_have_one_rank():
    assert bandwidth("equal").order(transfers([5, 9])).weight.tolist() == [1, 1]
    order = bandwidth("proportional").order(transfers([2, 3, 0], bytes=[5, 9, 0]))
    assert order.rank.tolist() == [0, 0, 0]
    assert order.weight.tolist() == [5, 9, 1], "by size, and a weight is never 0"


def test_the_fewest_bytes_left_come_first_and_the_earlier_of_two_equal_ones():
    assert ranks("shortest_first", [7, 3, 5, 3], bytes=[7, 9, 9, 9]) == [3, 0, 2, 1]
    assert ranks("shortest_first", [3 + 1e-10, 3]) == [0, 1], "rounding does not decide"


def test_the_earliest_due_comes_first_and_the_hopeless_last():
    # Due at 10 - after: 4, 8, 8 and 1; the last needs 2 s and is late even alone.
    facts = {"alone": 8.0, "after": [6, 2, 2, 9], "deadline": 10.0, "up": False}
    assert ranks("deadline_first", [3, 2, 1, 2], **facts) == [0, 2, 1, 3]
    assert ranks("deadline_first", [2, 1], deadline=[math.inf, 99.0]) == [1, 0], "no deadline comes after any"
    assert ranks("deadline_first", [1, 1], alone=[0.0, 8.0], deadline=5.0) == [1, 0], "a link that is down is late"


def test_the_longest_rest_comes_first_at_rates_in_proportion():
    order = bandwidth("least_makespan").order(transfers([4, 1, 2], alone=[8, 1, 4]))
    assert order.rank.tolist() == [1, 0, 1], "4, 8 and 4 seconds"
    assert order.weight.tolist() == [8, 1, 4]


def test_a_level_that_falls_reaches_the_next_one():
    spec = bandwidth("least_makespan")
    asked = transfers([4, 1, 2, 1], alone=[8, 1, 4, 8])
    order = spec.order(asked)
    # Levels 8 | 4, 4 | 1: the first falls by a second per second, the second rank by half of that.
    assert spec.lasts(asked, order, np.array([4.0, 1.0, 2.0, 0.0])) == pytest.approx(6.0)
    assert spec.lasts(asked, order, np.array([8.0, 1.0, 4.0, 8.0])) == math.inf


def test_downloads_have_equal_shares_unless_they_are_asked_for():
    asked = transfers([1, 1], up=False, after=[3, 9])
    assert bandwidth("least_makespan").order(asked).rank.tolist() == [0, 0]
    assert bandwidth({"kind": "least_makespan", "downloads": True}).order(asked).rank.tolist() == [1, 0]


@pytest.mark.parametrize("answer", [([0.5, 1], [1, 1]), ([0], [1, 1]), ([0, 1], [1, 0]), ([0, 1], [1, math.nan])])
def test_what_is_no_order_is_refused(answer):
    with pytest.raises(WrongAnswer, match="it returned"):
        checked_order(answer, 2)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(UserError, match="least_makespan"):
        bandwidth("least_makespans")
