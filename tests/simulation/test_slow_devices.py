"""Jitter, load and heat in a run: durations by the closed form, joules by the seconds."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.randomness import generator


def changed(profile, **compute):
    data = profile.model_dump(mode="json", exclude_none=True)
    data["compute"].update(compute)
    return type(profile).model_validate(data)


def test_jitter_lengthens_and_shortens_computing_by_the_seeds_own_draws(run, device):
    result = run(devices=[changed(device(), jitter=0.5)] * 2, rounds=3)
    for event in result.of("compute_end"):
        normal = generator(0, "jitter", event.round - 1).standard_normal(2)[event.client]
        assert event.seconds == pytest.approx(2 * np.exp(0.5 * normal - 0.125), rel=1e-12)
        assert (event.joules, event.flops) == (pytest.approx(5 * event.seconds), 2e9)


def test_other_programs_take_their_part_of_the_processor(run, device):
    result = run(devices=[changed(device(), background_load=0.5)] * 2, rounds=1)
    assert result.outcome.seconds == pytest.approx(1 + 4 + 1, rel=1e-12)


def test_heat_sets_in_after_its_seconds_of_computing(run, device):
    hot = changed(device(), thermal={"after": 0.5, "sustained": 0.25})
    result = run(devices=[hot] * 2, rounds=1)
    # A quarter of the work in the first 0.5 s, the rest at a quarter of the rate.
    assert result.of("compute_end")[0].seconds == pytest.approx(0.5 + 0.75 * 8, rel=1e-12)


def test_a_hot_computation_that_breaks_off_is_charged_for_its_seconds_and_its_progress(run, device):
    hot = changed(device(), thermal={"after": 0.5, "sustained": 0.25})
    result = run(devices=[hot] * 2, rounds=1, protocol={"deadline": 3.5})
    event = result.of("compute_drop")[0]
    assert (event.seconds, event.joules) == (pytest.approx(2.5), pytest.approx(12.5))
    assert event.flops == pytest.approx(2e9 * (0.25 + 2 / 8))
