"""Ties and leaders against the distance of means."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from edgefl.report.statistics import Estimate
from edgefl.report.ties import leaders, overlap

finite = st.floats(-1e6, 1e6)


@given(finite, st.floats(0, 1e3), finite, st.floats(0, 1e3))
def test_intervals_overlap_exactly_when_the_means_are_no_further_apart_than_both_half_widths(a, u, b, v):
    one, other = Estimate(a, u, 3), Estimate(b, v, 3)
    distance = abs(a - b)
    if not math.isclose(distance, u + v, rel_tol=1e-6, abs_tol=1e-6):
        assert overlap(one, other) == overlap(other, one) == (distance < u + v)


def test_intervals_that_touch_are_tied():
    assert overlap(Estimate(1.0, 0.5, 3), Estimate(2.0, 0.5, 3))


def test_the_leader_comes_first_and_the_tied_after_it():
    estimates = {"slow": Estimate(9.0, 0.1, 3), "fast": Estimate(2.0, 0.3, 3), "close": Estimate(2.5, 0.3, 3)}
    assert leaders(estimates, highest=False) == ["fast", "close"]
    assert leaders(estimates, highest=True) == ["slow"]
