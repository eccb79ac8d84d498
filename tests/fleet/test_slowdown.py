"""Random slowdowns, and devices that are made slower."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgefl.errors import UserError
from edgefl.fleet import (
    DeviceProfile,
    FleetAssignment,
    FleetGroup,
    InputPipeline,
    Pace,
    Slowdown,
    assign,
    load_profile,
    step_seconds,
    step_signature,
)
from edgefl.fleet.assignment import Sample, resolve, sampled_profiles
from edgefl.fleet.changed_profile import slower
from edgefl.fleet.figure import value
from edgefl.randomness import generator
from edgefl.simulation.work import work_on

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


def test_heat_lowers_the_speed_of_arithmetic_memory_overheads_and_reading(profile_data):
    profile_data["compute"]["thermal"] = {"after": "20 s", "sustained": 0.5}
    profile = DeviceProfile.model_validate(profile_data)
    arithmetic, memory, overheads = 2 * 2e9 / 2e9, 5e8 / 1e9, 3 * 10e-6 + 1e-3
    assert step_seconds(profile, STEP) == pytest.approx(arithmetic + memory + overheads)
    cost = SimpleNamespace(operators=STEP, peak_memory_bytes=0.0, training_flops=0.0)
    reading = InputPipeline(seconds=0.1, core=profile.core_speed)
    work = work_on(profile, {8: cost}, {8: 3}, reading, group=0, alpha=1, samples=24, steps=3)
    assert work.seconds == pytest.approx(3 * (arithmetic + memory + overheads + 0.8))
    assert work.hot_seconds == 2 * work.seconds
    app = work_on(profile, {8: cost}, {8: 1}, more=2, waits=5.0, group=0, alpha=1, samples=8, steps=3)
    computing = arithmetic + memory + overheads + 2 * 1e-3
    assert (app.seconds, app.hot_seconds) == pytest.approx((computing + 5, 2 * computing + 5))


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


WORK = [
    SimpleNamespace(flops=2e9, bytes=1e6, count=3, kind="linear"),
    SimpleNamespace(flops=10.0, bytes=5e7, count=7, kind=""),
    SimpleNamespace(flops=0.0, bytes=0.0, count=100, kind=""),
]
MEASURED = [{"signature": step_signature(WORK), "step": "a step", "seconds": {"low": 1, "nominal": 2, "high": 3}}]


def with_compute(**compute) -> DeviceProfile:
    group = FleetGroup(profile="raspberry-pi-4", share=1, link="5g", overrides={"compute": compute})
    return resolve(group).profile


@pytest.mark.parametrize("bound", ["low", "nominal", "high"])
@pytest.mark.parametrize("name", ["raspberry-pi-4", "rp2040-board", "measured"])
@settings(max_examples=20)
@given(factor=st.floats(1e-3, 1e3))
def test_every_step_takes_the_factor_times_as_long(name, bound, factor):
    profile = with_compute(measured_steps=MEASURED) if name == "measured" else load_profile(name)
    before = step_seconds(profile, WORK, bound=bound)
    assert step_seconds(slower(profile, factor), WORK, bound=bound) == pytest.approx(factor * before, rel=1e-9)


def test_a_device_of_half_the_speed_has_half_the_quota_and_a_sampled_one_has_none():
    measured = with_compute(cpu_quota=0.5)
    assert slower(measured, 2).compute.cpu_quota == 0.25
    drawn = sampled_profiles(measured, Sample(devices=2), generator(0, "sample"))
    assert [each.compute.cpu_quota for each in drawn] == [None, None]


def test_memory_power_and_random_slowdowns_stay():
    profile = with_compute(jitter=0.3, background_load=0.2, thermal={"after": "30 s", "sustained": 0.5})
    other = slower(profile, 3)
    assert (other.memory, other.power, other.battery) == (profile.memory, profile.power, profile.battery)
    for name in ("jitter", "background_load", "thermal"):
        assert getattr(other.compute, name) == getattr(profile.compute, name)
    DeviceProfile.model_validate(other.model_dump(mode="json"))


def test_the_pace_of_a_group_is_applied_after_its_overrides_and_once():
    group = FleetGroup(profile="raspberry-pi-4", share=1, link="5g", pace=2.5, overrides={"compute": {"jitter": 0.1}})
    resolved = resolve(group)
    assert resolve(resolved) == resolved
    (device,) = assign([resolved], clients=2, seed=0).profiles
    assert device.compute.jitter == 0.1
    assert step_seconds(device, WORK) == pytest.approx(2.5 * step_seconds(load_profile("raspberry-pi-4"), WORK))


@pytest.mark.parametrize("pace", [0, 1e300])
def test_a_pace_that_no_device_can_have_is_refused(small, pace):
    with pytest.raises(UserError, match=r"fleet.0.pace: expected "):
        small(**{"fleet.0.pace": pace})


def test_a_figure_that_no_device_can_have_is_refused():
    steps = [{**MEASURED[0], "seconds": "10 days"}]
    compute = {"compute": {"measured_steps": steps}}
    group = FleetGroup(profile="raspberry-pi-4", share=1, link="5g", overrides=compute, pace=1e6)
    with pytest.raises(UserError, match=r"fleet.3.pace.compute.measured_steps.0.seconds: expected 1e\+10 or less"):
        resolve(group, field="fleet.3")


DEPTHWISE = [SimpleNamespace(flops=0.0, bytes=1e9, count=1, kind="convolution-depthwise-forward")]


def test_an_override_of_a_general_figure_scales_the_kinds_with_figures_of_their_own():
    board = load_profile("raspberry-pi-4")
    overhead = value(board.compute.operator_overhead) + value(board.compute.step_overhead)
    own = step_seconds(board, DEPTHWISE) - overhead
    half = {"memory_bandwidth": value(board.compute.memory_bandwidth) / 2}
    assert step_seconds(with_compute(**half), DEPTHWISE) - overhead == pytest.approx(2 * own)
    kept = with_compute(**half, operator_rates={"move": {"memory_bandwidth": "1 GB/s"}})
    assert step_seconds(kept, DEPTHWISE) - overhead == pytest.approx(own)
