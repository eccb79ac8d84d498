"""How old the blocks are that clients train without being sent them; the model has four blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.scheduling.selection.uniform import UniformSelector
from edgefl.simulation.ledger import FrontBlocks


def age(result):
    spent = result.outcome.spent
    return spent.front_block_rounds / spent.front_blocks


@pytest.mark.parametrize(("alpha", "full_every", "expected"), [(1, 2, 1.0), (2, 3, 1.5), (3, 5, 2.5)])
def test_where_all_take_part_the_age_counts_from_the_last_full_round(run, alpha, full_every, expected):
    entry = {"method": "fedbr", "full_every": full_every}
    result = run(entry, rates=[8e6] * 3, rounds=2 * full_every, scheduler={"kind": "fixed", "alpha": alpha})
    assert age(result) == expected
    # Two partial spans of full_every - 1 rounds, three clients.
    assert result.outcome.spent.front_blocks == 2 * (full_every - 1) * 3 * (4 - alpha)


def test_a_block_that_was_never_sent_counts_from_the_first_model(run, monkeypatch):
    # Client 1 computes for the first time in round 3 (from 0), with two of four blocks.
    turns = [0, 0, 0, 1]
    monkeypatch.setattr(UniformSelector, "pick", lambda self, round, *others: np.array([turns[round]]))
    entry = {"method": "fedbr", "full_every": 100, "first_send": "none"}
    result = run(entry, rates=[8e6] * 2, cohort=1, rounds=4, scheduler={"kind": "fixed", "alpha": 2})
    # Client 0: rounds 1 and 2 with two blocks each of round 0's model.
    assert result.outcome.spent.front_block_rounds == 2 * (1 + 2) + 2 * 3
    assert age(result) == pytest.approx(2.0)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=40))
def test_ages_are_those_of_a_table_of_everything_that_was_sent(jobs):
    front, sent = FrontBlocks(5), []
    for round, (client, alpha) in enumerate(jobs):
        expected = [
            round - max([when for who, block, when in sent if (who, block) == (client, number)], default=0)
            for number in range(5 - alpha)
        ]
        assert front.trained(client, round, alpha) == (len(expected), sum(expected))
        sent += [(client, number, round) for number in range(5 - alpha, 5)]
