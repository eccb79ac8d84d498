import json

import pytest
from ruamel.yaml import YAML

from edgefl import shipped
from edgefl.fleet import DeviceProfile, load_profile, profile_names

from ..profiling.test_step_table import run


def test_list_in_json_has_numbers_in_base_units():
    by_name = {entry["name"]: entry for entry in json.loads(run("list", "--json"))}
    assert by_name["raspberry-pi-5"]["flops_per_second"] == pytest.approx(59.67e9)
    assert by_name["raspberry-pi-4"]["evidence"]["kind"] == "fitted"
    assert by_name["raspberry-pi-4-torch2"]["stack"] == "PyTorch 2"
    assert by_name["raspberry-pi-5"]["memory_bytes"] == 8 * 2**30


def same(one, other):
    """Whether two profiles say the same to twelve digits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return other == (pytest.approx(one, rel=1e-11) if isinstance(one, float) else one)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (number > 1)) for number, name in enumerate(profile_names())]
)
def test_every_profile_that_is_shown_says_what_its_file_says(name):
    expected = load_profile(name).model_dump(mode="json")
    for shown in (YAML(typ="safe", pure=True).load(run("show", name)), json.loads(run("show", name, "--json"))):
        assert same(expected, DeviceProfile.model_validate(shown).model_dump(mode="json"))


def test_show_prints_quantities_with_their_units():
    output = run("show", "raspberry-pi-5")
    assert "  fp32_peak: 153.6 GFLOP/s\n" in output
    assert "  memory_bandwidth: {low: 0.956 GB/s, nominal: 1.74 GB/s, high: 3.167 GB/s}\n" in output
    assert "  operator_overhead: {low: 12.5 us, nominal: 25 us, high: 50 us}\n" in output
    assert "  total: 8 GiB\n" in output
    assert "  idle: {low: 2.4 W, nominal: 3.2 W, high: 4 W}\n" in output
    assert json.loads(run("show", "raspberry-pi-5", "--json"))["compute"]["fp32_peak"] == 153.6e9


def test_validate_says_ok_and_what_the_profile_says():
    output = run("validate", str(shipped.files("device_profiles")["jetson-nano"]))
    assert "jetson-nano.yaml: ok" in output
    assert "59 GFLOP/s" in output
