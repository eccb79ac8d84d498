"""Schedulers of blocks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.registry import chosen_part
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS, BlockFeedback, BlockForecast, least_makespan
from edgefl.scheduling.blocks.schedulers import GmbsScheduler, best_blocks


def feedback(client, alpha, distance, loss, compute, transfer) -> BlockFeedback:
    return BlockFeedback(
        np.array(client),
        np.array(alpha),
        np.array(distance, float),
        np.array(loss, float),
        np.array(compute, float),
        np.array(transfer, float),
    )


def test_gmbs_worked_out_by_hand() -> None:
    """Two clients, M = 4, λ = 0.5: Eqs. 19-24 with a pocket calculator."""
    scheduler = GmbsScheduler(seed=0, arms=3, lam=0.5, bonus_scale=1.0)
    first = scheduler.choose(1, [0, 1], None)
    # Round 1: nothing known, V = √ln 2 for each arm; the first feedback has no loss to compare with.
    scheduler.observe(feedback([0, 1], [first[0], first[1]], [1, 3], [2.0, 2.0], [1, 1], [1, 3]))
    bonus = math.sqrt(math.log(4))
    for client in (0, 1):
        wanted = [bonus / 2 if arm == first[client] else bonus for arm in (1, 2, 3)]
        assert scheduler.values(3, client).tolist() == pytest.approx(wanted)
    second = scheduler.choose(3, [0, 1], None)
    assert second[0] != first[0]
    # d' = (0.25, 0.75); t'_c = (0.5, 0.5); t'_b = (0.25, 0.75); Δζ = (+0.4, -0.2).
    scheduler.observe(feedback([0, 1], [second[0], second[1]], [1, 3], [1.6, 2.2], [1, 1], [1, 3]))
    rewards = {0: 0.25 * 0.4 / math.exp(0.75), 1: 0.75 * -0.2 / math.exp(1.25)}
    bonus = math.sqrt(math.log(6))
    for client in (0, 1):
        played = (first[client], second[client])
        wanted = [bonus / (played.count(arm) + 1) for arm in (1, 2, 3)]
        wanted[second[client] - 1] += 0.5 * rewards[client]
        assert scheduler.values(5, client).tolist() == pytest.approx(wanted, rel=1e-12)
    # The third arm was never played: its bonus is twice the others' and wins.
    assert scheduler.choose(5, [0, 1], None) == {c: 6 - first[c] - second[c] for c in (0, 1)}


def test_what_a_choice_rested_on_is_eq_23_and_eq_24_by_hand() -> None:
    """One client and one arm: r = 1 · (2.0 - 1.6) / e² = 0.05413, p = r / 2; bonuses √ln 2 and √ln 4 / 2."""
    scheduler = GmbsScheduler(seed=0, arms=1, lam=0.5, bonus_scale=1.0)
    scheduler.choose(1, [7], None)
    assert scheduler.weighed() == {7: (0.0, pytest.approx(0.83255, abs=1e-5))}
    for loss in (2.0, 1.6):
        scheduler.observe(feedback([7], [1], [5], [loss], [3], [2]))
    scheduler.choose(3, [7], None)
    assert scheduler.weighed() == {7: (pytest.approx(0.02707, abs=1e-5), pytest.approx(0.58871, abs=1e-5))}


def test_the_bonus_is_twelve_tenths_at_first_and_a_seventh_of_it_after_ten_plays() -> None:
    """Every second round of sixty, three arms: √ln 4 = 1.18 in round 4, and √ln 62 / 11 = 0.185 after ten plays."""
    scheduler = GmbsScheduler(seed=0, arms=3, lam=0.5, bonus_scale=1.0)
    bonuses = []
    for t in range(1, 62, 2):
        scheduler.choose(t, [0], None)
        bonuses.append(scheduler.weighed()[0].bonus)
    assert (bonuses[1], bonuses[-1]) == (pytest.approx(1.177, abs=1e-3), pytest.approx(0.1847, abs=1e-4))


def test_memory_is_an_exponential_average_of_the_arm_that_was_played() -> None:
    scheduler = GmbsScheduler(seed=0, arms=2, lam=0.25, bonus_scale=0.0)
    scheduler.observe(feedback([7], [1], [5], [3.0], [1], [1]))
    expected = 0.0
    for loss, before in ((2.5, 3.0), (2.6, 2.5), (1.0, 2.6)):
        scheduler.observe(feedback([7], [1], [5], [loss], [1], [1]))
        expected = 0.25 * (before - loss) / math.exp(2) + 0.75 * expected
    assert scheduler.values(9, 7).tolist() == pytest.approx([expected, 0.0])
    assert scheduler.choose(9, [7], None) == {7: 1}


def test_a_model_that_came_whole_is_no_arm_and_refreshes_the_loss() -> None:
    scheduler = GmbsScheduler(seed=0, arms=3, lam=1.0, bonus_scale=0.0)
    scheduler.observe(feedback([0], [4], [1], [5.0], [1], [1]))
    scheduler.observe(feedback([0], [4], [1], [3.0], [1], [1]))
    assert scheduler.values(0, 0).tolist() == [0, 0, 0]
    scheduler.observe(feedback([0], [2], [1], [2.0], [1], [1]))
    assert scheduler.values(0, 0).tolist() == pytest.approx([0, math.exp(-2), 0])


def test_with_neutral_feedback_gmbs_plays_every_arm_equally_often() -> None:
    """The bonus alone is a round robin, so the mean is M/2: what Table V of the paper shows."""
    scheduler = chosen_part(BLOCK_SCHEDULERS, "gmbs").start(seed=3, blocks=6)
    played = [scheduler.choose(t, [4], None)[4] for t in range(1, 51)]
    assert sorted(played) == sorted([1, 2, 3, 4, 5] * 10)


def test_first_choices_differ_between_clients_and_seeds_but_not_between_runs() -> None:
    def draw(seed):
        return chosen_part(BLOCK_SCHEDULERS, "gmbs").start(seed, 6).choose(0, list(range(60)), None)

    assert set(draw(0).values()) == {1, 2, 3, 4, 5}
    assert draw(0) == draw(0)
    assert draw(0) != draw(1)


def test_a_choice_depends_on_no_other_client_of_the_cohort() -> None:
    for kind in ("gmbs", "random"):
        both = chosen_part(BLOCK_SCHEDULERS, kind).start(0, 6).choose(2, [3, 9], None)
        assert chosen_part(BLOCK_SCHEDULERS, kind).start(0, 6).choose(2, [9], None)[9] == both[9]


def test_random_blocks_are_uniform_over_one_to_m_minus_one() -> None:
    scheduler = chosen_part(BLOCK_SCHEDULERS, "random").start(seed=0, blocks=5)
    counts = np.bincount(list(scheduler.choose(1, range(4000), None).values()), minlength=6)
    assert counts[0] == counts[5] == 0
    assert np.abs(counts[1:5] - 1000).max() < 5 * math.sqrt(4000 * 0.25 * 0.75)


def test_fixed_and_all_are_constant() -> None:
    assert chosen_part(BLOCK_SCHEDULERS, {"kind": "fixed", "alpha": 6}).start(0, 6).choose(1, [2, 5], None) == {
        2: 6,
        5: 6,
    }
    assert chosen_part(BLOCK_SCHEDULERS, "all").start(0, 6).choose(1, [2], None) == {2: 6}
    with pytest.raises(UserError, match="only 6 blocks"):
        chosen_part(BLOCK_SCHEDULERS, {"kind": "fixed", "alpha": 7}).start(0, 6)


ARMS = 3


@st.composite
def tables(draw):
    """Seconds and bytes that grow with α, as they do where a larger tail is sent."""
    clients = draw(st.integers(1, 4))
    cell = st.lists(st.integers(1, 20), min_size=ARMS, max_size=ARMS)
    seconds = np.cumsum([draw(cell) for _ in range(clients)], axis=1).astype(float)
    bytes = np.cumsum([draw(cell) for _ in range(clients)], axis=1)
    worth = np.array([draw(st.integers(1, 9)) for _ in range(clients)], float)
    return worth, seconds, bytes


def choices(clients):
    return (np.array(choice) for choice in itertools.product(range(1, ARMS + 1), repeat=clients))


@settings(max_examples=30, deadline=None)
@given(tables(), st.integers(10, 60), st.integers(5, 120))
def test_the_program_finds_the_best_of_all_choices(table, most_seconds, most_bytes):
    worth, seconds, bytes = table
    rows = np.arange(len(worth))
    fitting = [
        choice
        for choice in choices(len(worth))
        if (seconds[rows, choice - 1] <= most_seconds).all() and bytes[rows, choice - 1].sum() <= most_bytes
    ]
    found = best_blocks(worth, seconds, bytes, most_seconds, most_bytes)
    if fitting:
        assert any((found == choice).all() for choice in fitting)
        assert worth @ found == max(worth @ choice for choice in fitting)
    else:
        assert (found >= 1).all()


@settings(max_examples=30, deadline=None)
@given(tables(), st.integers(1, 12))
def test_the_least_makespan_is_that_of_the_best_choice_of_as_many_blocks(table, total):
    _, seconds, bytes = table
    forecast = BlockForecast(seconds, bytes, np.ones(len(seconds), dtype=bool))
    tried = [forecast.makespan(choice) for choice in choices(len(seconds)) if choice.sum() >= total]
    assert least_makespan(forecast, total, ARMS) == min(tried, default=math.inf)


def test_without_limits_everyone_gets_the_largest_partial_tail():
    forecast = BlockForecast(np.ones((2, 5)), np.ones((2, 5), np.int64), np.ones(2, dtype=bool))
    assert chosen_part(BLOCK_SCHEDULERS, "optimal").start(0, 5).choose(1, [3, 8], forecast) == {3: 4, 8: 4}


def test_clients_that_moved_far_get_the_bytes():
    scheduler = chosen_part(BLOCK_SCHEDULERS, {"kind": "optimal", "bytes": 4}).start(0, 4)
    forecast = BlockForecast(np.ones((2, 4)), np.array([[1, 2, 3, 4]] * 2), np.ones(2, dtype=bool))
    same = np.array([1.0, 1.0])
    scheduler.observe(BlockFeedback(np.array([7, 9]), np.array([4, 4]), np.array([1.0, 3.0]), same, same, same))
    assert scheduler.choose(1, [7, 9], forecast) == {7: 1, 9: 3}


def test_a_client_that_is_sent_everything_anyway_takes_no_part():
    seconds = np.array([[9.0, 9.0, 9.0], [1.0, 2.0, 3.0]])
    forecast = BlockForecast(seconds, np.ones((2, 3), np.int64), np.array([False, True]))
    assert forecast.makespan(np.array([1, 2])) == 2.0
    assert least_makespan(forecast, 2, 2) == 2.0
