"""Quantities that are written are read back, and read well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.fleet.battery import Battery
from edgefl.units import UNITS, dimension_of, parse, spelt


@given(st.sampled_from(sorted(UNITS)), st.floats(1e-9, 1e18), st.floats(1e-9, 1e18) | st.none())
def test_what_is_written_is_read_back(dimension, quantity, beside):
    assert parse(spelt(quantity, dimension, like=beside), dimension) == pytest.approx(quantity, rel=1e-11)


@pytest.mark.parametrize("dimension", sorted(UNITS))
def test_nothing_is_written_in_the_base_unit(dimension):
    number, unit = spelt(0.0, dimension).split()
    assert (number, UNITS[dimension][unit]) == ("0", 1.0)


@pytest.mark.parametrize("text", ["35.2 GFLOP/s", "16 Mbit/s", "6.8 GiB", "1.5 GB", "25 us", "1 ms", "9.52 W", "20 mJ"])
def test_what_people_write_is_written_alike(text):
    dimension = next(each for each, units in UNITS.items() if text.split()[1] in units)
    assert spelt(parse(text, dimension), dimension) == text


def test_the_dimension_of_a_field_is_found_in_its_type():
    types = {name: (field.annotation, *field.metadata) for name, field in Battery.model_fields.items()}
    found = {name: [found for each in parts if (found := dimension_of(each))] for name, parts in types.items()}
    assert found == {"capacity": ["joules"], "start": [], "charging": ["watts"], "resume": []}
