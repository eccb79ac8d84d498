"""What a client's job costs: its devices, batches and cost models."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgefl.methods.parts.local_options import LocalOptions
from edgefl.randomness import generator
from edgefl.simulation.cost_specs import ComputeSeconds, SecondsCost
from edgefl.simulation.work import batch_counts


def spec(**options):
    return SecondsCost.model_validate(
        {"kind": "seconds", "methods": {"a": {"low": 1, "high": 5}, "b": "2 s"}, **options}
    )


def test_seconds_are_uniform_over_the_range_and_hold_until_they_are_redrawn():
    seconds = ComputeSeconds(spec(redraw="10 rounds"), "a", 0, 20_000)
    first = seconds.of(0)
    assert first.min() >= 1
    assert first.max() < 5
    # Mean 3 and standard deviation 4/√12 of the uniform law; five standard errors.
    assert abs(first.mean() - 3) < 5 * 4 / np.sqrt(12 * 20_000)
    assert (seconds.of(9) == first).all()
    assert (seconds.of(10) != first).any()
    assert (ComputeSeconds(spec(), "a", 0, 20_000).of(10) == first).all()


def test_who_is_slow_for_one_method_is_slow_for_all():
    wide = spec(methods={"a": {"low": 1, "high": 5}, "b": {"low": 10, "high": 30}})
    one, other = (ComputeSeconds(wide, name, 3, 50).of(7) for name in "ab")
    assert (other - 10) / 20 == pytest.approx((one - 1) / 4)


def test_a_round_takes_the_seconds_that_were_told(run):
    result = run(rates=[8e6] * 2, rounds=2, seconds=ComputeSeconds(spec(), "b", 0, 2))
    assert [row.seconds for row in result.outcome.rows] == pytest.approx([4, 8])
    drawn = ComputeSeconds(spec(), "a", 0, 2)
    result = run(rates=[8e6] * 2, rounds=1, seconds=drawn)
    assert result.outcome.seconds == pytest.approx(2 + drawn.of(0).max())


@pytest.mark.parametrize("redraw", ["10 s", "0 rounds"])
def test_seconds_are_redrawn_by_whole_rounds(redraw):
    with pytest.raises(ValidationError):
        spec(redraw=redraw)


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


@settings(max_examples=40)
@given(
    samples=st.integers(0, 60),
    batch=st.integers(1, 25),
    length=st.one_of(
        st.fixed_dictionaries({"epochs": st.integers(1, 4)}), st.fixed_dictionaries({"steps": st.integers(1, 40)})
    ),
    drop_last=st.booleans(),
    accumulate=st.integers(1, 4),
)
def test_the_steps_are_those_of_batches_that_are_dealt_one_by_one(samples, batch, length, drop_last, accumulate):
    options = LocalOptions(batch=batch, drop_last=drop_last, accumulate=accumulate, **length)
    epoch = [min(batch, samples - first) for first in range(0, samples, batch)]
    if drop_last and len(epoch) > 1 and epoch[-1] < batch:
        epoch.pop()
    epoch = [sum(epoch[first : first + accumulate]) for first in range(0, len(epoch), accumulate)]
    wanted = length.get("steps", length.get("epochs", 0) * len(epoch))
    dealt = Counter(epoch[step % len(epoch)] for step in range(wanted)) if epoch else {}
    assert batch_counts(options, samples) == dealt
