"""Quantities are printed in the unit in which a person would say them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.report.quantities import Unit, estimate, limit, quantity, unit_for
from edgefl.report.statistics import Estimate, mean_interval
from edgefl.units import parse


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.0, "seconds", "0 s"),
        (0.1234, "seconds", "0.123 s"),
        (0.0004271, "seconds", "0.000427 s"),
        (119.0, "seconds", "119 s"),
        (150.0, "seconds", "2.50 min"),
        (7200.0, "seconds", "2.00 h"),
        (999.0, "bytes", "999 B"),
        (1_500.0, "bytes", "1.50 kB"),
        (2.5e9, "bytes", "2.50 GB"),
        (4321.0, "joules", "4.32 kJ"),
        (0.9521, "fraction", "95.2 %"),
    ],
)
def test_a_quantity_has_three_figures_and_a_fitting_unit(value, dimension, text):
    assert quantity(value, dimension) == text


@settings(max_examples=40)
@given(st.floats(1e-2, 1e12), st.sampled_from(["seconds", "bytes", "joules"]))
def test_what_is_printed_reads_back_within_one_percent(value, dimension):
    if dimension == "bytes":
        value = float(max(100, round(value)))
    assert parse(quantity(value, dimension), dimension) == pytest.approx(value, rel=1e-2, abs=1e-3)


def test_a_limit_keeps_the_figures_that_a_person_chose():
    assert [limit(60, "seconds"), limit(500e6, "bytes"), limit(5e3, "joules")] == ["60 s", "500 MB", "5 kJ"]
    assert [limit(0.8, "fraction"), limit(0.925, "fraction")] == ["80 %", "92.5 %"]


def test_a_column_shares_the_unit_of_its_largest_figure():
    unit = unit_for([20e6, 3.2e9], "bytes")
    assert [unit.number(20e6), unit.number(3.2e9), unit.symbol] == ["0.02", "3.20", "GB"]


@settings(max_examples=40)
@given(st.floats(1e-8, 1e6), st.floats(1e-12, 1.0))
def test_a_figure_keeps_two_digits_however_small_it_is_beside_the_largest(largest, share):
    figure = largest * share
    printed = unit_for([largest], "joules").number(figure)
    scale = unit_for([largest], "joules").scale
    assert float(printed) * scale == pytest.approx(figure, rel=0.0501)


def test_counts_that_are_whole_stay_whole_and_a_mean_of_counts_keeps_its_fraction():
    unit = Unit("", 1.0)
    assert [unit.number(each) for each in (2.0, 2.5, 30.0, 1234.5)] == ["2", "2.5", "30", "1234"]


def test_an_interval_is_never_rounded_to_nothing():
    assert estimate(Estimate(0.952, 0.00034, 3), "fraction") == "95.2 ± 0.03 %"
    assert estimate(Estimate(34.1, 0.0979, 3), "seconds") == "34.1 ± 0.1 s"


def test_an_interval_stands_beside_its_mean_only_where_there_is_one():
    assert estimate(Estimate(0.9, 0.012, 3), "fraction") == "90.0 ± 1.2 %"
    assert estimate(Estimate(0.9, None, 1), "fraction") == "90.0 %"


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=5), st.sampled_from(["fraction", "seconds", "bytes", "joules"]))
def test_no_interval_that_is_shown_leaves_what_is_possible(values, dimension):
    unit = unit_for([max(values)], dimension)
    value = mean_interval(values)
    shown = unit.spread(value)
    most = 100.0 if dimension == "fraction" else float("inf")
    cut = value.low < 0 or value.high * 100 > most
    assert shown.startswith("[") is cut
    if cut:
        low, high = map(float, shown.strip("[]").split(", "))
        assert 0 <= low <= high <= most
        assert float(unit.number(value.mean)) == pytest.approx(value.mean / unit.scale, rel=0.06)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (Estimate(0.16, 0.1906, 2), "fraction", "16.0 [0, 35.1] %"),
        (Estimate(0.98, 0.031, 3), "fraction", "98.0 [94.9, 100.0] %"),
        (Estimate(0.5, 2.0, 2), "fraction", "50.0 [0, 100.0] %"),
        (Estimate(12.0, 15.2, 2), "seconds", "12.0 [0, 27.2] s"),
        (Estimate(1.5, 1.5, 2), "joules", "1.50 ± 1.50 J"),
    ],
)
def test_an_interval_that_is_cut_off_is_told_by_its_ends(value, dimension, text):
    assert estimate(value, dimension) == text
