"""The shipped profiles: complete, honest about what is known, and physically plausible."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgefl import shipped
from edgefl.fleet import Estimate, load_profile, profile_names, step_seconds, value
from edgefl.fleet.profile import figure_paths

WITHOUT_BOUNDS = ("fp32_peak", "operator_rates")
NAMES = sorted(shipped.files("device_profiles"))


def figure(profile, path):
    for name in path.split("."):
        profile = getattr(profile, name)
    return profile


def given(part, name, *rest):
    """Whether the profile gives this figure, which may be an optional one."""
    if name not in part.model_fields_set or getattr(part, name) is None:
        return False
    return not rest or given(getattr(part, name), *rest)


def test_the_devices_that_the_documentation_promises_are_there():
    promised = {
        "raspberry-pi-zero-2w", "raspberry-pi-4", "raspberry-pi-5", "rk3588-8gb", "n100-mini-pc",
        "jetson-nano", "jetson-xavier-nx", "jetson-orin-nano", "jetson-agx-orin",
        "phone-low-end", "phone-mid-range", "phone-flagship",
        "jetson-tx2", "jetson-agx-xavier", "jetson-orin-nx", "raspberry-pi-3b", "laptop-8-core", "pc-rtx-2080ti",
        "rp2040-board",
    }  # fmt: skip
    assert promised <= set(profile_names())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_has_its_file_name_sources_and_a_derivation_of_every_figure(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.provenance.sources
    assert set(profile.provenance.derivation) == {path for path in figure_paths() if given(profile, *path.split("."))}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_verified_says_how_uncertain_it_is(name):
    profile = load_profile(name)
    if not profile.provenance.verified:
        for path, derivation in profile.provenance.derivation.items():
            if derivation.startswith(("estimated", "fitted")) and path.rpartition(".")[2] not in WITHOUT_BOUNDS:
                assert isinstance(figure(profile, path), Estimate), path


@pytest.mark.parametrize("name", NAMES)
def test_training_reaches_well_below_the_peak_of_the_processor(name):
    compute = load_profile(name).compute
    assert value(compute.fp32_achievable) <= 0.45 * value(compute.fp32_peak)


def test_boards_stay_within_a_factor_of_two_and_a_half_of_their_measured_linpack():
    if "EDGEFL_DATA" not in os.environ:
        pytest.skip("EDGEFL_DATA is not set: no Linpack results to compare with")
    path = Path(os.environ["EDGEFL_DATA"], "traces", "hpl_sbc", "hpl_sbc.csv")
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with path.open() as file:
        rows = {row["device"]: row for row in csv.DictReader(file)}
    for name, device in {
        "raspberry-pi-4": "Raspberry Pi 4",
        "raspberry-pi-5": "Raspberry Pi 5 8GB",
        "rk3588-8gb": "Radxa ROCK 5B",
        "raspberry-pi-cm4": "Raspberry Pi CM4",
        "raspberry-pi-cm5": "Raspberry Pi CM5",
        "orange-pi-cm4": "Orange Pi CM4",
        "arduino-uno-q": "Arduino Uno Q",
        "milk-v-jupiter": "Milk-V Jupiter",
        "n150-mini-pc": "GMKtec NucBox G3 Plus",
    }.items():
        profile, row = load_profile(name), rows[device]
        assert 0.95 <= value(profile.compute.fp32_achievable) / (float(row["hpl_fp64_gflops"]) * 1e9) <= 2.5
        assert value(profile.power.compute) == pytest.approx(float(row["wall_watts"]), rel=0.1)


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float
    count: int = 1


def femnist_cnn_step(batch=10):
    """LEAF's FEMNIST CNN (two 5x5 convolutions of 32 and 64, 2048 units, 62 classes), counted by hand.

    Forward, weight gradient and (but for the first layer) input gradient each cost the forward's products; plain SGD
    reads weight and gradient and writes the weight.
    """
    layers = [  # multiply-accumulates per image, weights, inputs, outputs, passes
        (28 * 28 * 25 * 32, 25 * 32, 28 * 28, 28 * 28 * 32, 2),
        (14 * 14 * 25 * 32 * 64, 25 * 32 * 64, 14 * 14 * 32, 14 * 14 * 64, 3),
        (3136 * 2048, 3136 * 2048, 3136, 2048, 3),
        (2048 * 62, 2048 * 62, 2048, 62, 3),
    ]
    work = [Work(0, 0, 60)]  # activations, pooling, loss: launches only
    for macs, weights, inputs, outputs, passes in layers:
        work.append(Work(2 * macs * batch, 4 * (weights + batch * (inputs + outputs)), passes))
        work.append(Work(2 * weights, 12 * weights))
    return work


def celeba_cnn_step(batch=10):
    """LEAF's CelebA CNN (four 3x3 convolutions of 32 with normalisation and pooling on 84x84), counted by hand."""
    work, side, channels = [Work(0, 0, 60)], 84, 3
    for layer in range(4):
        macs = side * side * 9 * channels * 32
        moved = 4 * (9 * channels * 32 + batch * side * side * (channels + 32))
        work.append(Work(2 * macs * batch, moved, 2 if layer == 0 else 3))
        work.append(Work(0, 4 * batch * side * side * 32 * 2, 8))
        side, channels = (side + 1) // 2, 32
        work.append(Work(0, 4 * batch * side * side * 32 * 2, 4))
    return work


def test_the_page_prints_what_the_profiles_give():
    page = (Path(__file__).parents[2] / "docs" / "device-profiles.md").read_text(encoding="utf-8")
    for tier in ("slow", "mid", "fast"):
        profile = load_profile(f"phone-flash-{tier}")
        femnist, celeba = (round(1e3 * step_seconds(profile, step())) for step in (femnist_cnn_step, celeba_cnn_step))
        low, high = (round(1e3 * step_seconds(profile, celeba_cnn_step(), bound=bound)) for bound in ("low", "high"))
        row = next(line for line in page.splitlines() if line.startswith(f"| {tier} |"))
        assert f"| {femnist} |" in row
        assert row.endswith(f"| {celeba} | {low}–{high} |")
    for name in ("phone-mid-range", "phone-flagship", "phone-low-end"):
        profile, step = load_profile(name), femnist_cnn_step()
        low, nominal, high = (round(1e3 * step_seconds(profile, step, bound=b)) for b in ("low", "nominal", "high"))
        assert f"`{name}` takes {nominal} ms ({low}–{high})" in page or f"`{name}` {nominal} ms ({low}–{high})" in (
            page.replace("\n", " ")
        )


@pytest.mark.parametrize(("tier", "milliseconds"), [("slow", 1642), ("mid", 588), ("fast", 179)])
def test_the_flash_phones_take_the_measured_time_for_a_femnist_step(tier, milliseconds):
    step = femnist_cnn_step()
    assert step_seconds(load_profile(f"phone-flash-{tier}"), step) == pytest.approx(milliseconds / 1e3, rel=0.1)


@pytest.mark.parametrize(
    ("name", "milliseconds", "times"),
    [("phone-low-end", (1642, 5392), (3.5, 7.4)), ("phone-mid-range", (588, 1355), (3.5, 5.1)),
     ("phone-flagship", (179, 561), (4.6, 9.0))],
)  # fmt: skip
def test_derived_phones_are_faster_than_those_of_flash_by_what_the_page_says(name, milliseconds, times):
    """FLASH's phones trained with DL4J, which used less of a processor than the PyTorch that the profiles describe."""
    profile = load_profile(name)
    for step, measured, faster in zip((femnist_cnn_step(), celeba_cnn_step()), milliseconds, times, strict=True):
        assert measured / 1e3 / step_seconds(profile, step) == pytest.approx(faster, abs=0.1)
        assert step_seconds(profile, step, bound="high") < measured / 1e3


def test_devices_of_one_family_are_ordered_by_generation():
    step = femnist_cnn_step()
    for family in (
        ("raspberry-pi-zero-2w", "raspberry-pi-3b", "raspberry-pi-4", "raspberry-pi-5"),
        ("jetson-nano", "jetson-tx2", "jetson-agx-xavier", "jetson-orin-nx", "jetson-agx-orin", "pc-rtx-2080ti"),
        ("jetson-xavier-nx", "jetson-orin-nano", "jetson-agx-orin"),
        ("phone-low-end", "phone-mid-range", "phone-flagship"),
        ("phone-2019-mid-range", "phone-2019-flagship", "phone-2024-flagship"),
    ):
        seconds = [step_seconds(load_profile(name), step) for name in family]
        assert seconds == sorted(seconds, reverse=True)
