"""Fitting of rates."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile, step_seconds
from edgefl.fleet.assignment import Sample, sampled_profiles
from edgefl.fleet.fitting import CHANNELS, Rates, fit_cuda, fit_rates, relative_errors
from edgefl.operator_kinds import KINDS
from edgefl.validation import validated

WIDE, NARROW, PLAIN = "convolution-wide-spatial-forward", "convolution-narrow-spatial-forward", "elementwise"
BY_KIND = Rates(
    40e9, 6e9, 10e-6, 1e-3, {WIDE: (80e9, 6e9, 20e-6), NARROW: (10e9, 6e9, 10e-6), PLAIN: (40e9, 12e9, 5e-6)}
)


@dataclass(frozen=True)
class Work:
    flops: float
    bytes: float
    count: int
    kind: str = ""


def chain(kind, size):
    return [Work(size, size / 100, 3, kind)] if kind != PLAIN else [Work(size / 100, size, 3, kind)]


def step(draws):
    convolutions = [Work(10 ** draws.uniform(6, 8.5), 1e5, 10, kind) for kind in (WIDE, NARROW)]
    return [*convolutions, Work(1e4, 10 ** draws.uniform(4, 7), 40, PLAIN)]


def timings(noise=0.0, seed=1):
    draws = np.random.default_rng(seed)
    steps = [step(draws) for _ in range(9)]
    chains = [chain(kind, 10**size) for kind in (WIDE, NARROW, PLAIN) for size in (4, 5, 6, 7, 8)]

    def timed(runs):
        return [(run, BY_KIND.seconds(run) * float(np.exp(noise * draws.standard_normal()))) for run in runs]

    # A chain carries no step's overhead, and moves memory twice as fast as a step does.
    chains = [
        (run, BY_KIND.seconds([Work(each.flops, each.bytes / 2, each.count, each.kind) for each in run]) - 1e-3 + 1e-6)
        for run in chains
    ]
    return timed(steps), chains


def test_the_rates_that_made_the_timings_are_found():
    rates = fit_rates(*timings())
    for kind in (WIDE, NARROW):  # kept near the general rates, so not quite the true ones
        assert rates.kinds[kind][0] == pytest.approx(BY_KIND.kinds[kind][0], rel=0.12)
    assert rates.kinds[PLAIN][1] == pytest.approx(12e9, rel=0.1)
    unseen = [(run, BY_KIND.seconds(run)) for run in (step(np.random.default_rng(seed)) for seed in range(50, 58))]
    assert np.mean(np.abs(relative_errors(rates, unseen))) < 0.05


@pytest.mark.full
def test_noise_of_five_percent_moves_predictions_by_little_more():
    rates = fit_rates(*timings(noise=0.05))
    unseen = [(run, BY_KIND.seconds(run)) for run in (step(np.random.default_rng(seed)) for seed in range(50, 58))]
    assert np.mean(np.abs(relative_errors(rates, unseen))) < 0.12


def gpu_step(draws):
    """Half of the networks are limited by launches."""
    size = 10 ** draws.uniform(-2, 1)
    kinds = [kind for kind in KINDS if kind.startswith("convolution")]
    convolutions = [Work(size * 10 ** draws.uniform(8, 10), 1e5, 5, str(kind)) for kind in draws.choice(kinds, 6)]
    return [*convolutions, Work(1e4, size * 10 ** draws.uniform(6, 8), 60, PLAIN), Work(size * 1e9, 1e6, 4)]


def test_the_figures_of_a_gpu_that_made_the_steps_are_found():
    product, spatial, half, launch = 9e12, 14e12, 24, 90e-6
    kinds = {PLAIN: (9e12, 400e9, 9e-6)}
    for kind in (each for each in KINDS if each.startswith("convolution")):
        width = kind.split("-")[1]
        rate = spatial if "spatial" in kind and width != "thin" else product
        kinds[kind] = rate / (1 + half / CHANNELS[width]), 400e9, launch
    true = Rates(product / (1 + half / CHANNELS["medium"]), 400e9, launch, 1e-3, kinds, cuda=True)
    draws = np.random.default_rng(4)
    made = [(step, true.seconds(step)) for step in (gpu_step(draws) for _ in range(40))]
    figures = {"peak": 15e12, "memory_bandwidth": 500e9, "operator_overhead": 8e-6, "step_overhead": 1e-3}
    found = fit_cuda(made[:20], **figures)
    assert np.mean(np.abs(relative_errors(found, made[20:]))) < 0.06
    assert found.operator_overhead == pytest.approx(launch, rel=0.15)


def with_rates(profile_data, rates):
    profile_data["compute"]["operator_rates"] = rates
    return DeviceProfile.model_validate(profile_data)


def test_a_profile_with_the_fitted_kinds_predicts_the_same(profile_data):
    names = ("fp32_achievable", "memory_bandwidth", "operator_overhead")
    profile_data["compute"].update(
        fp32_peak=1e12, step_overhead=1e-3, fp32_achievable=40e9, memory_bandwidth=6e9, operator_overhead=10e-6
    )
    profile = with_rates(
        profile_data, {kind: dict(zip(names, figures, strict=True)) for kind, figures in BY_KIND.kinds.items()}
    )
    run = [*step(np.random.default_rng(0)), Work(1e6, 1e6, 2), Work(1e6, 1e6, 2, "reduction")]
    assert step_seconds(profile, run) == pytest.approx(BY_KIND.seconds(run), rel=1e-12)


def test_a_kind_takes_from_the_general_figures_what_it_leaves_out(profile_data):
    profile = with_rates(profile_data, {"elementwise": {"memory_bandwidth": {"low": 1e9, "nominal": 2e9, "high": 4e9}}})
    work = [Work(0, 4e9, 1, "elementwise")]
    low, nominal, high = (step_seconds(profile, work, bound=bound) for bound in ("low", "nominal", "high"))
    assert (low, nominal, high) == pytest.approx((1 + 1.01e-3, 2 + 1.01e-3, 4 + 1.01e-3), rel=1e-12)
    # Another kind, and an operator that says none, are as before: 4 s at 1 GB/s.
    for other in (Work(0, 4e9, 1, "move"), SimpleNamespace(flops=0, bytes=4e9, count=1)):
        assert step_seconds(profile, [other]) == pytest.approx(4 + 1.01e-3, rel=1e-12)


def test_a_misspelt_kind_is_named(profile_data):
    profile_data["compute"]["operator_rates"] = {"elementwize": {}}
    with pytest.raises(UserError, match="did you mean 'elementwise'"):
        validated(DeviceProfile, profile_data)
    assert len(set(KINDS)) == len(KINDS)


def test_a_sampled_device_is_faster_in_every_kind(profile_data):
    base = with_rates(
        profile_data, {WIDE: {"fp32_achievable": 4e9, "operator_overhead": {"low": 1, "nominal": 2, "high": 3}}}
    )
    for each in sampled_profiles(base, Sample(devices=8), np.random.default_rng(0)):
        speed = each.compute.fp32_achievable.nominal / base.compute.fp32_achievable.nominal
        own = each.compute.operator_rates[WIDE]
        assert own.fp32_achievable == pytest.approx(4e9 * speed)
        assert own.operator_overhead.high == pytest.approx(3 / speed)
        assert own.memory_bandwidth is None
