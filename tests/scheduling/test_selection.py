"""Selectors: who is picked, how evenly, and always the same for the same key."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.scheduling.selection.base import Facts, Foreseen, SelectionFeedback, selection

NO_FACTS = Facts()


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 5), st.integers(0, 9))
def test_a_cohort_is_ascending_without_repetition_and_drawn_from_the_available(clients, cohort, seed, round) -> None:
    available = np.arange(clients) * 3 + 1
    for kind in ("uniform", "fixed", "coverage"):
        support = Facts(np.ones((3 * clients + 1, 2), dtype=bool))
        picked = selection(kind).start(seed).pick(round, available, cohort, support)
        assert len(picked) == min(cohort, clients)
        assert (np.diff(picked) > 0).all()
        assert np.isin(picked, available).all()


def test_every_client_is_picked_equally_often() -> None:
    selector, available = selection("uniform").start(1), np.arange(20)
    counts = np.zeros(20)
    for t in range(2000):
        counts[selector.pick(t, available, 5, NO_FACTS)] += 1
    assert np.abs(counts - 500).max() < 5 * math.sqrt(2000 * 0.25 * 0.75)


def test_cohorts_depend_on_seed_and_round_alone() -> None:
    available = np.arange(100)
    first = [selection("uniform").start(0).pick(t, available, 10, NO_FACTS).tolist() for t in (0, 1)]
    again = selection("uniform").start(0)
    assert [again.pick(t, available, 10, NO_FACTS).tolist() for t in (1, 0)] == first[::-1]
    assert first[0] != first[1]
    assert selection("uniform").start(1).pick(0, available, 10, NO_FACTS).tolist() != first[0]


def test_a_big_fleet_costs_memory_for_the_cohort_only() -> None:
    selector, available = selection("uniform").start(0), np.arange(131_072)
    selector.pick(0, available, 100, NO_FACTS)
    tracemalloc.start()
    selector.pick(1, available, 100, NO_FACTS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000  # a permutation of the fleet would take a megabyte


def test_coverage_cohorts_hold_every_class() -> None:
    support = np.zeros((100, 10), dtype=bool)  # two classes each
    deck = np.random.default_rng(0).permuted(np.tile(np.arange(10), (20, 1)), axis=1).ravel()
    support[np.repeat(np.arange(100), 2), deck] = True
    selector = selection("coverage").start(0)
    for t in range(50):
        assert support[selector.pick(t, np.arange(100), 10, Facts(support))].any(axis=0).all()


def test_a_cohort_that_chance_would_never_find_is_repaired() -> None:
    support = np.zeros((400, 8), dtype=bool)
    support[:, 0] = True
    for label in range(1, 8):
        support[50 * label, label] = True  # one client in the whole fleet for each rare class
    picked = selection({"kind": "coverage", "tries": 5}).start(0).pick(0, np.arange(400), 7, Facts(support))
    assert picked.tolist() == [50, 100, 150, 200, 250, 300, 350]


def test_coverage_asks_no_more_than_the_available_clients_can_give() -> None:
    support = np.zeros((6, 3), dtype=bool)
    support[:, 0] = support[5, 2] = True
    picked = selection("coverage").start(0).pick(0, np.array([0, 1, 5]), 2, Facts(support))
    assert 5 in picked


def test_fixed_picks_the_listed_clients_as_far_as_they_are_there() -> None:
    selector = selection({"kind": "fixed", "clients": [8, 2, 5]}).start(0)
    assert selector.pick(0, np.arange(10), 3, NO_FACTS).tolist() == [2, 5, 8]
    assert selector.pick(7, np.array([1, 2, 8]), 3, NO_FACTS).tolist() == [2, 8]
    assert selection("fixed").start(0).pick(3, np.arange(10), 4, NO_FACTS).tolist() == [0, 1, 2, 3]
    with pytest.raises(UserError, match="different"):
        selection({"kind": "fixed", "clients": [1, 1]}).start(0)


EVERYONE = np.arange(10)


def oort(**options):
    return selection({"kind": "oort", **options}).start(0)


def tell(selector, clients, losses, seconds, samples=10):
    clients = np.asarray(clients)
    selector.observe(
        SelectionFeedback(
            clients, np.asarray(losses, float), np.full(len(clients), samples), np.asarray(seconds, float)
        )
    )


def test_the_first_cohort_is_all_exploration_and_ends_in_everyone_tried():
    selector = oort()
    seen: set[int] = set()
    for round in range(12):
        picked = selector.pick(round, EVERYONE, 3, Facts())
        assert len(picked) == 3
        assert (np.diff(picked) > 0).all()
        tell(selector, picked, np.ones(3), np.ones(3))
        seen |= set(picked.tolist())
    assert seen == set(range(10))


def test_utility_is_statistical_plus_age_times_the_penalty_for_the_slow():
    selector = oort(percentile=50, penalty=2)
    selector.pick(0, EVERYONE, 3, Facts())
    tell(selector, [0, 1, 2], [1.0, 2.0, 3.0], [10.0, 20.0, 40.0])
    selector.pick(1, EVERYONE, 3, Facts())
    # Two picks; all took part in the first; the preferred duration is the median, 20 s.
    bonus = math.sqrt(0.1 * math.log(2) / 1)
    expected = [0.0 + bonus, 0.5 + bonus, (1.0 + bonus) * (20 / 40) ** 2]
    assert selector.utilities(np.array([0, 1, 2])) == pytest.approx(expected, rel=1e-12)


def test_without_exploration_the_useful_and_quick_are_picked():
    selector = oort(exploration=0, least_exploration=0, cutoff=1.0)
    selector.pick(0, EVERYONE, 10, Facts())
    tell(selector, EVERYONE, np.arange(10.0), np.ones(10))
    assert selector.pick(1, EVERYONE, 3, Facts()).tolist() == [7, 8, 9]


def test_the_pacer_welcomes_slower_clients_when_utility_falls():
    selector = oort(window=1, percentile=30, pacer_step=10)
    for round, loss in enumerate([5.0, 4.0, 6.0, 3.0]):
        picked = selector.pick(round, EVERYONE, 2, Facts())
        tell(selector, picked, [loss, loss], [1.0, 1.0])
    assert selector._percentile == 50


def test_equal_losses_make_no_difference_and_no_error():
    selector = oort(exploration=0, least_exploration=0)
    tell(selector, EVERYONE, np.zeros(10), np.zeros(10))
    assert len(selector.pick(0, EVERYONE, 4, Facts())) == 4


DOWNLOAD = np.array([1.0, 1.0, 1.0, 1.0, 1.0])
COMPUTE = np.array([9.0, 2.0, 4.0, 1.0, 3.0])
UPLOAD = np.array([1.0, 2.0, 1.0, 5.0, 1.0])
"""Alone: 11, 5, 6, 7 and 5 s."""

FACTS = Facts(foreseen=lambda asked: Foreseen(DOWNLOAD[asked], COMPUTE[asked], UPLOAD[asked]))
ALL_FIVE = np.arange(5)


def pick(cohort, **options):
    selector = selection({"kind": "deadline", **options}).start(0)
    return selector.pick(0, ALL_FIVE, cohort, FACTS).tolist()


def test_whoever_is_foreseen_in_time_is_picked_quickest_first():
    assert pick(5, deadline=6) == [1, 2, 4]
    assert pick(2, deadline=6) == [1, 4]
    assert pick(5, deadline=20) == [0, 1, 2, 3, 4]


def test_uploads_one_after_another_take_their_turns():
    # 1 or 4 first (5 s each; the first of equals is 1), then 4 (5 + 1), 2 (6 + 1), 0 (10 + 1), 3 (11 + 5).
    assert pick(5, deadline=7, uploads="sequential") == [1, 2, 4]
    assert pick(5, deadline=11, uploads="sequential") == [0, 1, 2, 4]
    assert pick(5, deadline=16, uploads="sequential") == [0, 1, 2, 3, 4]


def test_where_nobody_is_in_time_the_quickest_goes():
    assert pick(3, deadline=0.5) == [1]


def test_only_some_are_asked():
    asked = []

    def foreseen(clients):
        asked.extend(clients.tolist())
        return Foreseen(DOWNLOAD[clients], COMPUTE[clients], UPLOAD[clients])

    selector = selection({"kind": "deadline", "deadline": 100, "asked": 2}).start(3)
    picked = selector.pick(0, ALL_FIVE, 2, Facts(foreseen=foreseen))
    assert len(asked) == 4
    assert set(picked.tolist()) <= set(asked)
