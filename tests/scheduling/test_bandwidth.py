"""Bandwidth allocations as pure functions: ranks and weights worked out by hand."""

import math

import numpy as np
import pytest

from edgefl.errors import UserError, WrongAnswer
from edgefl.scheduling.bandwidth.base import Transfers, bandwidth, checked_order


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
