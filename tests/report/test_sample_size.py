"""The number of seeds that a comparison needs: against simulated comparisons, and published numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.report.paired import compared
from edgefl.report.statistics import MOST_SEEDS, mean_interval, power_of_comparison, seeds_needed, upper_deviation


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


@pytest.mark.full
def test_the_power_holds_for_whole_comparisons_of_methods_with_what_seeds_have_in_common():
    """Both methods' accuracies vary by ten points with the seed, their difference of two points by 2.5."""
    needed, random = seeds_needed(0.02, 0.025), np.random.default_rng(7)
    separated = 0
    for _ in range(1500):
        common = random.normal(0.7, 0.1, needed)
        better = dict(enumerate(common + 0.02 + random.normal(0.0, 0.025, needed)))
        separated += compared({"a": dict(enumerate(common)), "b": better}, highest=True).leaders == ["b"]
    assert separated / 1500 == pytest.approx(power_of_comparison(0.02, 0.025, needed), abs=0.03)


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


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-3, 20.0), st.integers(2, 200), st.sampled_from([0.95, 0.975, 0.99]))
def test_more_seeds_and_less_spread_never_lower_the_power(deviation, seeds, confidence):
    power = power_of_comparison(1.0, deviation, seeds, confidence)
    assert 1 - confidence - 1e-6 <= power <= 1.0
    assert power_of_comparison(1.0, deviation, seeds + 1, confidence) >= power - 1e-6
    assert power_of_comparison(1.0, 1.1 * deviation, seeds, confidence) <= power + 1e-6


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 30.0), st.floats(0.5, 0.99))
def test_the_number_is_the_least_with_the_power(deviation, power):
    needed = seeds_needed(1.0, deviation, power=power)
    if needed is None:
        assert power_of_comparison(1.0, deviation, MOST_SEEDS) < power
        return
    assert power_of_comparison(1.0, deviation, needed) >= power
    assert needed == 2 or power_of_comparison(1.0, deviation, needed - 1) < power
