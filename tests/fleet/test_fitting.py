"""Fitting a roofline: it finds the rates that invented steps were made with, and bears noise."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgefl.fleet import DeviceProfile, step_seconds
from edgefl.fleet.fitting import Rates, fit_rates, relative_errors

TRUE = Rates(30e9, 8e9, 12e-6, 1e-3)


def steps(noise=0.0, count=12):
    draws = np.random.default_rng(3)
    made = []
    for _ in range(count):
        operators = [
            SimpleNamespace(flops=10 ** draws.uniform(4, 9.5), bytes=10 ** draws.uniform(3, 8), count=int(number))
            for number in draws.integers(1, 20, size=8)
        ]
        made.append((operators, TRUE.seconds(operators) * float(np.exp(noise * draws.standard_normal()))))
    return made


def test_the_rates_that_made_the_steps_are_found():
    rates = fit_rates(steps())
    assert rates.flops_per_second == pytest.approx(TRUE.flops_per_second, rel=1e-3)
    assert rates.bytes_per_second == pytest.approx(TRUE.bytes_per_second, rel=1e-3)
    assert max(abs(error) for error in relative_errors(rates, steps())) < 1e-3


def test_a_profile_with_the_fitted_rates_predicts_the_same(profile_data):
    profile_data["compute"].update(
        fp32_peak=1e12, fp32_achievable=30e9, memory_bandwidth=8e9, operator_overhead=12e-6, step_overhead=1e-3
    )
    profile = DeviceProfile.model_validate(profile_data)
    for operators, seconds in steps():
        assert step_seconds(profile, operators) == pytest.approx(seconds, rel=1e-12)


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="at least four"):
        fit_rates(steps()[:3])
