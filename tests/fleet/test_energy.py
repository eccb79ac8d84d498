import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.fleet import compute_joules, idle_joules, load_profile, transfer_joules


def test_computing_and_waiting_are_watts_times_seconds(board):
    assert compute_joules(board, 10) == pytest.approx(60, rel=1e-12)
    assert idle_joules(board, 10) == pytest.approx(20, rel=1e-12)
    assert [idle_joules(board, 10, bound=bound) for bound in ("low", "high")] == [10, 30]


def test_a_transfer_is_its_active_seconds_and_its_megabytes(board):
    assert transfer_joules(board, "down", 4, 20e6) == pytest.approx(0.5 * 4 + 0.1 * 20, rel=1e-12)
    assert transfer_joules(board, "up", 4, 20e6) == pytest.approx(1 * 4 + 0.6 * 20, rel=1e-12)
    assert transfer_joules(board, "up", 4, 20e6, bound="high") == pytest.approx(1 * 4 + 0.9 * 20, rel=1e-12)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0.001, 100), st.floats(0, 1e9)), min_size=1, max_size=20))
def test_the_closed_form_is_the_integral_of_a_plus_b_rate(pieces):
    """Power a + b * rate, integrated piece by piece, with b in watts per Mbit/s as papers state it."""
    profile = load_profile("phone-flagship")
    watts_per_megabit = 0.26 / 8
    integral = sum((1.7 + watts_per_megabit * bits / 1e6) * seconds for seconds, bits in pieces)
    seconds = sum(seconds for seconds, _ in pieces)
    moved = sum(seconds * bits / 8 for seconds, bits in pieces)
    assert transfer_joules(profile, "up", seconds, moved) == pytest.approx(integral, rel=1e-9)


def test_lte_on_a_phone_costs_what_the_fit_on_measured_logs_says():
    # b = 11.5 and 76.7 mW per Mbit/s down and up, that is 0.092 and 0.61 J per megabyte
    profile = load_profile("phone-mid-range")
    per_megabyte = [transfer_joules(profile, direction, 0, 1e6) for direction in ("down", "up")]
    assert np.allclose(per_megabyte, [8 * 0.0115, 8 * 0.0767], rtol=0.01)
