"""Means, intervals, censored times and the seeds that a comparison needs, against scipy, simulations and tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.report.statistics import (
    mean_interval,
    mean_or_none,
    power_of_comparison,
    seeds_needed,
    time_to_target,
    upper_deviation,
)

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


def decided(differences, confidence=0.95):
    """The share of rows whose interval excludes zero."""
    intervals = [mean_interval(row, confidence) for row in differences]
    return float(np.mean([not each.low <= 0.0 <= each.high for each in intervals]))


@pytest.mark.parametrize(
    ("deviation", "power"),
    [(0.6, 0.8), *(pytest.param(*each, marks=pytest.mark.full) for each in ((1.3, 0.8), (2.0, 0.8), (1.3, 0.9)))],
)
def test_with_the_needed_seeds_the_stated_power_is_reached_and_with_one_less_it_is_not(deviation, power):
    """Simulated comparisons of a true difference of one: the share that is decided is the predicted power."""
    needed = seeds_needed(1.0, deviation, power=power)
    random = np.random.default_rng([int(10 * deviation), int(10 * power)])
    shares = [decided(random.normal(1.0, deviation, (6000, seeds))) for seeds in (needed, needed - 1)]
    predicted = [power_of_comparison(1.0, deviation, seeds) for seeds in (needed, needed - 1)]
    assert shares == pytest.approx(predicted, abs=0.02)  # three standard errors are 0.016
    assert predicted[0] >= power > predicted[1]


def test_cohens_table_for_one_sample_gives_the_same_number():
    """d = 0.5, two-sided 5 %, power 0.80: 34 values; G*Power 3 gives the same."""
    assert seeds_needed(0.5, 1.0) == 34
    assert seeds_needed(0.8, 1.0) == 15


def test_the_upper_bound_of_the_deviation_is_above_the_true_one_in_80_percent_of_samples():
    random = np.random.default_rng(3)
    for seeds in (3, 5, 10):
        found = np.std(random.normal(0.0, 2.0, (8000, seeds)), ddof=1, axis=1)
        share = np.mean([upper_deviation(float(each), seeds) >= 2.0 for each in found])
        assert share == pytest.approx(0.8, abs=0.015)


def test_equal_differences_need_two_seeds_and_no_difference_needs_too_many():
    assert seeds_needed(1.0, 0.0) == seeds_needed(1.0, 1e-12) == 2
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1.0, 1e9) is None
    assert power_of_comparison(1.47, 1.0, 737, 0.995) == 1.0  # SciPy's function returns NaN here
