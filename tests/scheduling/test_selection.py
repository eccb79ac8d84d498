"""Selectors: who is picked, how evenly, and always the same for the same key."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.scheduling.selection.base import Facts, selection

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


def two_classes_each(clients: int, classes: int = 10) -> Facts:
    support = np.zeros((clients, classes), dtype=bool)
    deck = np.random.default_rng(0).permuted(np.tile(np.arange(classes), (2 * clients // classes, 1)), axis=1).ravel()
    support[np.repeat(np.arange(clients), 2), deck] = True
    return Facts(support)


def test_coverage_cohorts_hold_every_class() -> None:
    facts, selector = two_classes_each(100), selection("coverage").start(0)
    for t in range(50):
        picked = selector.pick(t, np.arange(100), 10, facts)
        assert facts.label_support[picked].any(axis=0).all()


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
