"""A device that is slower by a factor needs the factor times as long for every step, and is otherwise the same."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.errors import UserError
from edgefl.fleet import FleetGroup, assign, load_profile, step_seconds, step_signature
from edgefl.fleet.assignment import Sample, resolve, sampled_profiles
from edgefl.fleet.figure import value
from edgefl.fleet.profile import DeviceProfile, slower
from edgefl.randomness import generator

STEP = [
    SimpleNamespace(flops=2e9, bytes=1e6, count=3, kind="linear"),
    SimpleNamespace(flops=10.0, bytes=5e7, count=7, kind=""),
    SimpleNamespace(flops=0.0, bytes=0.0, count=100, kind=""),
]
MEASURED = [{"signature": step_signature(STEP), "step": "a step", "seconds": {"low": 1, "nominal": 2, "high": 3}}]


def with_compute(**compute) -> DeviceProfile:
    group = FleetGroup(profile="raspberry-pi-4", share=1, link="5g", overrides={"compute": compute})
    return resolve(group).profile


@pytest.mark.parametrize("bound", ["low", "nominal", "high"])
@pytest.mark.parametrize("name", ["raspberry-pi-4", "rp2040-board", "measured"])
@settings(max_examples=20)
@given(factor=st.floats(1e-3, 1e3))
def test_every_step_takes_the_factor_times_as_long(name, bound, factor):
    profile = with_compute(measured_steps=MEASURED) if name == "measured" else load_profile(name)
    before = step_seconds(profile, STEP, bound=bound)
    assert step_seconds(slower(profile, factor), STEP, bound=bound) == pytest.approx(factor * before, rel=1e-9)


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
    assert step_seconds(device, STEP) == pytest.approx(2.5 * step_seconds(load_profile("raspberry-pi-4"), STEP))


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
