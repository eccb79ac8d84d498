"""Seconds that a scenario gives itself, in place of the roofline's."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from edgefl.simulation.cost_specs import ComputeSeconds, SecondsCost


def spec(**options):
    return SecondsCost.model_validate(
        {"kind": "seconds", "methods": {"a": {"low": 1, "high": 5}, "b": "2 s"}, **options}
    )


def test_seconds_are_uniform_over_the_range_and_hold_until_they_are_redrawn():
    seconds = spec(redraw="10 rounds")
    first = seconds.of("a", 0, 0, clients=20_000)
    assert first.min() >= 1
    assert first.max() < 5
    # Mean 3 and standard deviation 4/√12 of the uniform law; five standard errors.
    assert abs(first.mean() - 3) < 5 * 4 / np.sqrt(12 * 20_000)
    assert (seconds.of("a", 0, 9, clients=20_000) == first).all()
    assert (seconds.of("a", 0, 10, clients=20_000) != first).any()
    assert (spec().of("a", 0, 10, clients=20_000) == first).all()


def test_who_is_slow_for_one_method_is_slow_for_all():
    wide = spec(methods={"a": {"low": 1, "high": 5}, "b": {"low": 10, "high": 30}})
    one, other = (wide.of(name, 3, 7, clients=50) for name in "ab")
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
