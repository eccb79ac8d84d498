"""Means, intervals and censored times against scipy and numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.report.statistics import Estimate, mean_interval, mean_or_none, time_to_target

finite = st.floats(-1e6, 1e6)


@settings(deadline=None, max_examples=40)  # the first call imports scipy
@given(st.lists(finite, min_size=2, max_size=8))
def test_the_interval_is_the_one_of_scipys_t_distribution(values):
    from scipy import stats

    estimate = mean_interval(values)
    error = stats.sem(values)
    half_width = stats.t.ppf(0.975, len(values) - 1) * error
    assert estimate.mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert estimate.half_width == pytest.approx(half_width, rel=1e-6, abs=1e-6)


def test_the_interval_of_one_two_three_has_the_textbooks_half_width():
    # t(0.975; 2) = 4.302653, standard deviation 1, root of 3
    assert mean_interval([1.0, 2.0, 3.0]).half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_one_seed_has_no_interval_and_no_seed_no_mean():
    assert mean_interval([0.5]) == Estimate(0.5, None, 1)
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])


def test_a_mean_is_not_formed_of_the_seeds_that_happen_to_have_a_figure():
    assert mean_or_none([0.5, None, 0.7]) is None
    assert mean_or_none([]) is None


@given(st.lists(st.one_of(st.none(), st.floats(0.1, 1e4)), min_size=1, max_size=7))
def test_the_median_counts_seeds_that_never_arrive_as_the_latest(seconds):
    found = time_to_target(seconds)
    reached = sorted(value for value in seconds if value is not None)
    assert (found.reached, found.seeds) == (len(reached), len(seconds))
    assert (found.mean is not None) == (len(reached) == len(seconds))
    if 2 * len(reached) > len(seconds):
        assert found.median is not None
        earlier = sum(value <= found.median for value in reached)
        assert 2 * earlier >= len(seconds)
    else:
        assert found.median is None


def test_a_late_seed_that_never_arrived_does_not_make_a_method_look_faster():
    # The mean of the two that arrived would be 15; the median of three, the third being latest, is 20.
    assert time_to_target([10.0, 20.0, None]).median == 20.0
