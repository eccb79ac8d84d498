"""The integer program and the least makespan against trying every choice."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.scheduling.blocks.base import BlockFeedback, BlockForecast, block_scheduler, least_makespan
from edgefl.scheduling.blocks.optimal import best_blocks

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
    assert block_scheduler("optimal").start(0, 5).choose(1, [3, 8], forecast) == {3: 4, 8: 4}


def test_clients_that_moved_far_get_the_bytes():
    scheduler = block_scheduler({"kind": "optimal", "bytes": 4}).start(0, 4)
    forecast = BlockForecast(np.ones((2, 4)), np.array([[1, 2, 3, 4]] * 2), np.ones(2, dtype=bool))
    same = np.array([1.0, 1.0])
    scheduler.observe(BlockFeedback(np.array([7, 9]), np.array([4, 4]), np.array([1.0, 3.0]), same, same, same))
    assert scheduler.choose(1, [7, 9], forecast) == {7: 1, 9: 3}


def test_a_client_that_is_sent_everything_anyway_takes_no_part():
    seconds = np.array([[9.0, 9.0, 9.0], [1.0, 2.0, 3.0]])
    forecast = BlockForecast(seconds, np.ones((2, 3), np.int64), np.array([False, True]))
    assert forecast.makespan(np.array([1, 2])) == 2.0
    assert least_makespan(forecast, 2, 2) == 2.0


def test_a_world_without_predictions_is_refused():
    with pytest.raises(UserError, match="predicted seconds and bytes"):
        block_scheduler("optimal").start(0, 4).choose(1, [0])
