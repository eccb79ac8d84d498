"""Chance, other programs, heat and measured steps: against closed forms and a step-by-step integration."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgefl.fleet import DeviceProfile, FleetAssignment, Pace, Slowdown, step_seconds, step_signature
from edgefl.randomness import generator

STEP = [SimpleNamespace(flops=2e9, bytes=1e3, count=2), SimpleNamespace(flops=0.0, bytes=5e8, count=1)]


def fleet_of(data, clients=20_000, **compute):
    data["compute"].update(compute)
    profile = DeviceProfile.model_validate(data)
    return FleetAssignment((profile,), ("link",), np.zeros(clients, np.int32))


def test_jitter_is_lognormal_with_mean_one_and_the_given_spread(profile_data):
    logs = np.log(Slowdown(fleet_of(profile_data, jitter=0.3), seed=1).of(0))
    assert logs.std() == pytest.approx(0.3, rel=0.03)
    assert logs.mean() == pytest.approx(-0.045, abs=0.01)
    assert np.exp(logs).mean() == pytest.approx(1.0, rel=0.01)


def test_a_constant_load_divides_the_speed_and_a_range_is_drawn_evenly_from(profile_data):
    assert Slowdown(fleet_of(profile_data, background_load=0.2), seed=1).of(0) == pytest.approx(1.25)
    loads = 1 - 1 / Slowdown(fleet_of(profile_data, background_load={"low": 0.1, "high": 0.5}), seed=1).of(0)
    assert (loads.min(), loads.mean(), loads.max()) == pytest.approx((0.1, 0.3, 0.5), abs=0.01)


def test_a_draw_depends_on_seed_and_round_alone_and_not_on_what_was_asked_before(profile_data):
    fleet = fleet_of(profile_data, clients=50, jitter=0.2)
    slowdown = Slowdown(fleet, seed=5)
    forwards = [slowdown.of(round).copy() for round in range(12)]
    assert all((Slowdown(fleet, seed=5).of(round) == forwards[round]).all() for round in reversed(range(12)))
    assert (forwards[0] != forwards[1]).all()
    assert (Slowdown(fleet, seed=6).of(0) != forwards[0]).all()
    normal = generator(5, "jitter", 7).standard_normal(50)
    assert forwards[7] == pytest.approx(np.exp(0.2 * normal - 0.02))


positive = st.floats(0.01, 100)


@given(positive, st.floats(1, 10), positive, st.floats(0, 1))
def test_a_pace_agrees_with_advancing_in_small_steps(cool, ratio, after, share):
    pace = Pace(cool, cool * ratio, after)
    elapsed = share * pace.seconds
    rates = ((1 / pace.cool, min(elapsed, after)), (1 / pace.hot, max(elapsed - after, 0)))
    assert pace.done(elapsed) == pytest.approx(sum(rate * seconds for rate, seconds in rates), abs=1e-9)
    assert pace.done(pace.seconds) == 1
    assert pace.done(pace.seconds * (1 - 1e-12)) == pytest.approx(1, abs=1e-9)


def test_heat_lowers_the_arithmetic_rate_and_leaves_memory_and_overheads(profile_data):
    profile_data["compute"]["thermal"] = {"after": "20 s", "sustained": 0.5}
    profile = DeviceProfile.model_validate(profile_data)
    arithmetic, memory, overheads = 2 * 2e9 / 2e9, 5e8 / 1e9, 3 * 10e-6 + 1e-3
    assert step_seconds(profile, STEP) == pytest.approx(arithmetic + memory + overheads)
    assert step_seconds(profile, STEP, hot=True) == pytest.approx(2 * arithmetic + memory + overheads)


def test_a_measured_step_wins_over_the_roofline_and_other_steps_keep_it(profile_data):
    bare = step_seconds(DeviceProfile.model_validate(profile_data), STEP[:1])
    row = {"signature": step_signature(STEP), "step": "a test", "seconds": {"low": 0.1, "nominal": 0.2, "high": 0.4}}
    profile_data["compute"]["measured_steps"] = [row]
    profile = DeviceProfile.model_validate(profile_data)
    assert [step_seconds(profile, STEP, bound=bound) for bound in ("low", "nominal", "high")] == [0.1, 0.2, 0.4]
    assert step_seconds(profile, STEP[:1]) == bare
    profile_data["compute"]["measured_steps"] *= 2
    with pytest.raises(ValidationError, match="expected each signature once"):
        DeviceProfile.model_validate(profile_data)


def test_a_signature_sees_what_is_executed_and_not_its_order_or_its_types():
    again = [STEP[1], *[SimpleNamespace(flops=2_000_000_000, bytes=1000, count=1)] * 2]
    assert step_signature(again) == step_signature(STEP)
    assert step_signature(STEP[:1]) != step_signature(STEP)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"background_load": {"low": 0.5, "high": 0.1}}, "low <= high"),
        ({"background_load": 1.0}, "less than 1"),
        ({"thermal": {"after": "1 s", "sustained": 1.5}}, "less than or equal to 1"),
        ({"jitter": -0.1}, "greater than or equal to 0"),
    ],
)
def test_impossible_conditions_are_refused(profile_data, change, complaint):
    profile_data["compute"].update(change)
    with pytest.raises(ValidationError, match=complaint):
        DeviceProfile.model_validate(profile_data)
