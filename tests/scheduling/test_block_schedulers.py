"""Block schedulers, GMBS against the paper's equations worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.scheduling.blocks.base import BlockFeedback, block_scheduler
from edgefl.scheduling.blocks.gmbs import GmbsScheduler


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
    first = scheduler.choose(1, [0, 1])
    # Round 1: nothing known, V = √ln 2 for each arm; the first feedback has no loss to compare with.
    scheduler.observe(feedback([0, 1], [first[0], first[1]], [1, 3], [2.0, 2.0], [1, 1], [1, 3]))
    bonus = math.sqrt(math.log(4))
    for client in (0, 1):
        wanted = [bonus / 2 if arm == first[client] else bonus for arm in (1, 2, 3)]
        assert scheduler.values(3, client).tolist() == pytest.approx(wanted)
    second = scheduler.choose(3, [0, 1])
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
    assert scheduler.choose(5, [0, 1]) == {c: 6 - first[c] - second[c] for c in (0, 1)}


def test_memory_is_an_exponential_average_of_the_arm_that_was_played() -> None:
    scheduler = GmbsScheduler(seed=0, arms=2, lam=0.25, bonus_scale=0.0)
    scheduler.observe(feedback([7], [1], [5], [3.0], [1], [1]))
    expected = 0.0
    for loss, before in ((2.5, 3.0), (2.6, 2.5), (1.0, 2.6)):
        scheduler.observe(feedback([7], [1], [5], [loss], [1], [1]))
        expected = 0.25 * (before - loss) / math.exp(2) + 0.75 * expected
    assert scheduler.values(9, 7).tolist() == pytest.approx([expected, 0.0])
    assert scheduler.choose(9, [7]) == {7: 1}


def test_a_model_that_came_whole_is_no_arm_and_refreshes_the_loss() -> None:
    scheduler = GmbsScheduler(seed=0, arms=3, lam=1.0, bonus_scale=0.0)
    scheduler.observe(feedback([0], [4], [1], [5.0], [1], [1]))
    scheduler.observe(feedback([0], [4], [1], [3.0], [1], [1]))
    assert scheduler.values(0, 0).tolist() == [0, 0, 0]
    scheduler.observe(feedback([0], [2], [1], [2.0], [1], [1]))
    assert scheduler.values(0, 0).tolist() == pytest.approx([0, math.exp(-2), 0])


def test_with_neutral_feedback_gmbs_plays_every_arm_equally_often() -> None:
    """The bonus alone is a round robin, so the mean is M/2: what Table V of the paper shows."""
    scheduler = block_scheduler("gmbs").start(seed=3, blocks=6)
    played = [scheduler.choose(t, [4])[4] for t in range(1, 51)]
    assert sorted(played) == sorted([1, 2, 3, 4, 5] * 10)


def test_first_choices_differ_between_clients_and_seeds_but_not_between_runs() -> None:
    def draw(seed):
        return block_scheduler("gmbs").start(seed, 6).choose(0, list(range(60)))

    assert set(draw(0).values()) == {1, 2, 3, 4, 5}
    assert draw(0) == draw(0)
    assert draw(0) != draw(1)


def test_a_choice_depends_on_no_other_client_of_the_cohort() -> None:
    for kind in ("gmbs", "random"):
        both = block_scheduler(kind).start(0, 6).choose(2, [3, 9])
        assert block_scheduler(kind).start(0, 6).choose(2, [9])[9] == both[9]


def test_random_blocks_are_uniform_over_one_to_m_minus_one() -> None:
    scheduler = block_scheduler("random").start(seed=0, blocks=5)
    counts = np.bincount(list(scheduler.choose(1, range(4000)).values()), minlength=6)
    assert counts[0] == counts[5] == 0
    assert np.abs(counts[1:5] - 1000).max() < 5 * math.sqrt(4000 * 0.25 * 0.75)


def test_fixed_and_all_are_constant() -> None:
    assert block_scheduler({"kind": "fixed", "alpha": 6}).start(0, 6).choose(1, [2, 5]) == {2: 6, 5: 6}
    assert block_scheduler("all").start(0, 6).choose(1, [2]) == {2: 6}
    with pytest.raises(UserError, match="only 6 blocks"):
        block_scheduler({"kind": "fixed", "alpha": 7}).start(0, 6)


@pytest.mark.parametrize(
    ("entry", "message"),
    [("gmsb", "did you mean 'gmbs'"), ({"kind": "gmbs", "lamb": 1}, "did you mean 'lam'"), ("fixed", "alpha")],
)
def test_a_wrong_entry_is_refused_with_the_nearest_name(entry, message) -> None:
    with pytest.raises(UserError, match=message):
        block_scheduler(entry)
