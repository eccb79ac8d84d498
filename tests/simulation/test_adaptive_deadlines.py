"""Deadlines from earlier durations, by hand: a client of r MB/s takes 1/r s down, 2 s computing, 1/r s up."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefl.simulation.protocol_specs import AdaptiveDeadline

from .conftest import cells
from .fair_shares import outages

FIVE = [8e6, 8e6 / 1.5, 4e6, 3.2e6, 0.8e6]
"""Durations of 4, 5, 6, 7 and 22 s: the median is 6 s, and the MAD is 1 s."""


def adaptive(**options):
    return {"deadline": {"kind": "adaptive", **options}}


def near(seconds):
    return pytest.approx(seconds, rel=1e-9)


def decided(result):
    return [event.facts["seconds"] for event in result.of("decision", item="deadline")]


def test_a_round_lasts_until_the_median_and_some_deviations_of_the_durations_before_it(run):
    result = run(rates=FIVE, rounds=3, protocol=adaptive(deviations=2.5))
    # Round 1: no deadline. Round 2: 6 + 2.5 x 1 s, which only the slowest client misses; it counts as 8.5 s, which
    # moves neither the median nor the MAD: they are those of 4, 5, 6, 7, 22, 4, 5, 6, 7, 8.5.
    assert decided(result) == [near(8.5), near(6 + 2.5 * 1)]
    assert [row.seconds for row in result.outcome.rows] == [near(22), near(30.5), near(39)]
    assert [row.aggregated for row in result.outcome.rows] == [5, 4, 4]


def test_the_first_deadline_holds_until_a_duration_is_known(run):
    result = run(rates=FIVE, rounds=2, protocol=adaptive(first=5.5, deviations=0))
    # 4, 5, and three times 5.5 s.
    assert decided(result) == [near(5.5), near(5.5)]
    assert [row.aggregated for row in result.outcome.rows] == [2, 2]


@pytest.mark.parametrize("rate", [8e6 / 3, 8e6 / 7.3])
def test_a_deadline_at_everyones_duration_cuts_nobody_off(run, rate):
    result = run(rates=[rate] * 4, rounds=40, protocol=adaptive(deviations=0))
    assert [row.aggregated for row in result.outcome.rows] == [4] * 40
    assert decided(result) == [near(2 + 2 * 8e6 / rate)] * 39


def test_only_the_latest_rounds_count(run):
    # The slowest client's link is fast from 22 s on.
    changes = outages()
    changes.attach = lambda network: [
        network.env.timeout(22.0).callbacks.append(lambda _, ends=ends: network.set_capacity(*ends, 8e6))
        for ends in (("internet", "client/0"), ("client/0", "internet"))
    ]
    options = {"rates": [0.8e6], "rounds": 4, "capacity_changes": changes}
    short = run(**options, protocol=adaptive(rounds=1, deviations=0))
    long = run(**options, protocol=adaptive(rounds=10, deviations=0))
    assert decided(short) == [near(22), near(4), near(4)]
    assert decided(long) == [near(22), near(13), near(4)]


def test_cells_close_at_the_adaptive_deadline(run):
    protocol = {"kind": "hierarchical", **adaptive(deviations=0)}
    rates = [8e6, 8e6, 4e6]
    result = run(rates=rates, topology=cells(rates), rounds=2, protocol=protocol)
    # Cell 0 has the clients 0 and 2: 1 s to the cell, then 4 and 6 s; client 1 takes 5 s in all. The median is 5 s.
    assert decided(result) == [near(5)]
    assert [row.aggregated for row in result.outcome.rows] == [3, 2]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rates=st.lists(st.floats(1e6, 2e7), min_size=1, max_size=6),
    deviations=st.floats(0, 4),
    window=st.integers(1, 3),
    over=st.sampled_from([1.0, 1.5]),
)
def test_every_deadline_is_that_of_the_durations_in_the_log(run, rates, deviations, window, over):
    options = adaptive(deviations=deviations, rounds=window)
    cohort = max(1, len(rates) - 2)
    result = run(rates=rates, rounds=5, cohort=cohort, protocol={**options, "over_select": over})
    begun, durations, expected = 0.0, [], []
    for row in result.outcome.rows[:-1]:
        ends = [
            *result.of("transfer_end", item="up", round=row.round),
            *result.of("lost", item="late", round=row.round),
        ]
        durations.append([event.time - begun for event in ends])
        known = [each for seen in durations[-window:] for each in seen]
        middle = np.median(known)
        expected.append(near(middle + deviations * np.median(np.abs(np.array(known) - middle))))
        begun = row.seconds
    assert decided(result) == expected


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 10))
def test_the_rule_is_the_median_and_a_multiple_of_the_mad(durations, deviations):
    middle = np.median(durations)
    expected = middle + deviations * np.median(np.abs(np.array(durations) - middle))
    assert AdaptiveDeadline(kind="adaptive", deviations=deviations).of(durations) == pytest.approx(expected, rel=1e-12)
