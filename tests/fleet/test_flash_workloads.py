"""The ratios that FLASH measured between phones, from rooflines that are fitted to two of its four workloads.

The training steps are counted by hand.

LEAF's models, with the sizes of its published settings: FEMNIST's and CelebA's CNN at batch 10, a stacked LSTM of two
layers of 256 on Reddit (10 words, vocabulary 10,000, batch 10) and on Shakespeare (80 characters, embedding 8, batch
100 as FLASH names it). The batch of the other three is FLASH's default and an assumption.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import least_squares

from edgefl.fleet import load_profile, step_seconds
from edgefl.fleet.fitting import Rates


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float
    count: int = 1


def femnist():
    """Two 5x5 convolutions of 32 and 64, 2048 units, 62 classes; forward, weight and input gradients, plain SGD."""
    work, batch = [Work(0, 0, 60)], 10  # activations, pooling, loss: launches only
    for macs, weights, inputs, outputs, passes in (
        (28 * 28 * 25 * 32, 25 * 32, 28 * 28, 28 * 28 * 32, 2),
        (14 * 14 * 25 * 32 * 64, 25 * 32 * 64, 14 * 14 * 32, 14 * 14 * 64, 3),
        (3136 * 2048, 3136 * 2048, 3136, 2048, 3),
        (2048 * 62, 2048 * 62, 2048, 62, 3),
    ):
        work.append(Work(2 * macs * batch, 4 * (weights + batch * (inputs + outputs)), passes))
        work.append(Work(2 * weights, 12 * weights))
    return work


def celeba():
    """Four 3x3 convolutions of 32 with normalisation and pooling on 84x84."""
    work, side, channels, batch = [Work(0, 0, 60)], 84, 3, 10
    for layer in range(4):
        macs = side * side * 9 * channels * 32
        work.append(
            Work(2 * macs * batch, 4 * (9 * channels * 32 + batch * side * side * (channels + 32)), 3 - (layer == 0))
        )
        work.append(Work(0, 4 * batch * side * side * 32 * 2, 8))
        side, channels = (side + 1) // 2, 32
        work.append(Work(0, 4 * batch * side * side * 32 * 2, 4))
    return work


def lstm(batch, steps, embedding, classes, outputs_each_step):
    """Two layers of 256: at each time step and layer two products forward and four backward, and elementwise ones."""
    hidden, work = 256, []
    for inputs in (embedding, hidden):
        for width in (inputs, hidden):
            product = Work(
                2 * batch * width * 4 * hidden, 4 * (width * 4 * hidden + batch * (width + 4 * hidden)), 3 * steps
            )
            work.append(product)
        # Gates, cell and output: 10 operators forward and 15 backward, reading and writing about two gates' worth each.
        work.append(Work(batch * hidden, 4 * 3 * batch * hidden, 25 * steps))
        weights = (inputs + hidden) * 4 * hidden
        work.append(Work(2 * weights, 12 * weights))
    rows = batch * (steps if outputs_each_step else 1)
    work.append(Work(2 * rows * hidden * classes, 4 * (hidden * classes + rows * (hidden + classes)), 3))
    work.append(Work(rows * classes, 4 * 2 * rows * classes, 6))
    work.append(Work(2 * hidden * classes, 12 * hidden * classes))
    return work


def reddit():
    """Ten words, each predicting the next of 10,000; the embedding of 256 has a gradient of its full size."""
    return [*lstm(10, 10, 256, 10_000, outputs_each_step=True), Work(0, 12 * 10_000 * 256)]


def shakespeare():
    """Eighty characters, the last predicting the next of 80."""
    return lstm(100, 80, 8, 80, outputs_each_step=False)


WORKLOADS = {"femnist": femnist(), "celeba": celeba(), "reddit": reddit(), "shakespeare": shakespeare()}

MILLISECONDS = {
    "femnist": {"slow": 1642, "mid": 588, "fast": 179},
    "celeba": {"slow": 5392, "mid": 1355, "fast": 561},
    "reddit": {"slow": 2596, "mid": 916, "fast": 527.7},
    "shakespeare": {"slow": 28621, "mid": 13579, "fast": 10681},
}

USUAL = {"slow": (0.9e9, 1.5e9, 250e-6), "mid": (2.5e9, 5e9, 100e-6), "fast": (8e9, 9e9, 40e-6)}
"""FLOP/s, bytes/s, seconds an operator where the search begins; each counts as a hundredth of a measurement."""


def fitted(workloads, tier):
    """The roofline of one phone from its times for these workloads."""
    usual = np.log(USUAL[tier])

    def misses(logarithms):
        rates = Rates(*np.exp(logarithms), 0.0)
        seconds = [MILLISECONDS[name][tier] / 1e3 for name in workloads]
        return np.array(
            [
                *(np.log(rates.seconds(WORKLOADS[name]) / each) for name, each in zip(workloads, seconds, strict=True)),
                *(0.01 * (logarithms - usual)),
            ]
        )

    starts = ([0, 0, 0], [0, -2, 0], [0, 0, 2], [1, -2, 2], [1, 0, 3], [-1, -1, -1])
    best = min((least_squares(misses, usual + start) for start in starts), key=lambda fit: fit.cost)
    return Rates(*np.exp(best.x), 0.0)


def ratios(phones, name):
    """Slow over fast: predicted, measured."""
    predicted = phones["slow"].seconds(WORKLOADS[name]) / phones["fast"].seconds(WORKLOADS[name])
    return predicted, MILLISECONDS[name]["slow"] / MILLISECONDS[name]["fast"]


@pytest.fixture(name="phones", scope="module")
def phones_fixture():
    return {tier: fitted(("femnist", "reddit"), tier) for tier in USUAL}


def test_two_workloads_give_all_four_ratios_within_a_quarter(phones):
    for name in WORKLOADS:
        predicted, measured = ratios(phones, name)
        assert predicted == pytest.approx(measured, rel=0.25), name


def test_the_page_prints_what_the_fit_gives(phones):
    page = (Path(__file__).parents[2] / "docs" / "device-profiles.md").read_text(encoding="utf-8")
    for name, step in WORKLOADS.items():
        predicted, measured = ratios(phones, name)
        errors = [phones[tier].seconds(step) / MILLISECONDS[name][tier] * 1e3 - 1 for tier in ("slow", "mid", "fast")]
        row = f"| {name} | {measured:.1f} | {predicted:.1f} | " + " | ".join(f"{error:+.0%}" for error in errors) + " |"
        assert row.replace("-", "−") in page.replace("-", "−"), row


@pytest.mark.parametrize(("tier", "milliseconds"), [("slow", 1642), ("mid", 588), ("fast", 179)])
def test_the_flash_phones_take_the_measured_time_for_a_femnist_step(tier, milliseconds):
    step = WORKLOADS["femnist"]
    assert step_seconds(load_profile(f"phone-flash-{tier}"), step) == pytest.approx(milliseconds / 1e3, rel=0.1)


@pytest.mark.parametrize(
    ("name", "milliseconds", "times"),
    [("phone-low-end", (1642, 5392), (3.5, 7.4)), ("phone-mid-range", (588, 1355), (3.5, 5.1)),
     ("phone-flagship", (179, 561), (4.6, 9.0))],
)  # fmt: skip
def test_derived_phones_are_faster_than_those_of_flash_by_what_the_page_says(name, milliseconds, times):
    """FLASH's phones trained with DL4J, which used less of a processor than the PyTorch that the profiles describe."""
    profile = load_profile(name)
    for step, measured, faster in zip((WORKLOADS["femnist"], WORKLOADS["celeba"]), milliseconds, times, strict=True):
        assert measured / 1e3 / step_seconds(profile, step) == pytest.approx(faster, abs=0.1)
        assert step_seconds(profile, step, bound="high") < measured / 1e3


def test_devices_of_one_family_are_ordered_by_generation():
    step = WORKLOADS["femnist"]
    for family in (
        ("raspberry-pi-zero-2w", "raspberry-pi-3b", "raspberry-pi-4", "raspberry-pi-5"),
        ("jetson-nano", "jetson-tx2", "jetson-agx-xavier", "jetson-orin-nx", "jetson-agx-orin", "pc-rtx-2080ti"),
        ("jetson-xavier-nx", "jetson-orin-nano", "jetson-agx-orin"),
        ("phone-low-end", "phone-mid-range", "phone-flagship"),
        ("phone-2019-mid-range", "phone-2019-flagship", "phone-2024-flagship"),
    ):
        seconds = [step_seconds(load_profile(name), step) for name in family]
        assert seconds == sorted(seconds, reverse=True)
