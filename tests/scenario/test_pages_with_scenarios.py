"""Pages with YAML: their examples are legal, and their tables name what exists."""

import re
from pathlib import Path

import pytest

from edgefl.fleet import DeviceProfile, FleetGroup
from edgefl.scenario import load_scenario, resolve
from edgefl.scenario.loading import check
from edgefl.units import UNITS
from edgefl.validation import validated
from edgefl.yaml_file import parse_yaml

DOCS = Path(__file__).parents[2] / "docs"


def examples(page):
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def shipped():
    return resolve(load_scenario("5g_100clients"))


@pytest.mark.parametrize("example", examples("scenarios.md"), ids=lambda example: example.split(":")[0])
def test_every_example_is_legal_in_the_shipped_scenario(shipped, example):
    said = parse_yaml(example)
    data = said if "name" in said else {**shipped, **said}
    assert check(data)


def test_every_unit_of_a_scenario_that_is_on_the_page_exists():
    table = (DOCS / "scenarios.md").read_text(encoding="utf-8").split("| quantity | base | units |")[1].split("\n\n")[0]
    known = {unit for units in UNITS.values() for unit in units}
    assert set(re.findall(r"`([^`]+)`", table)) <= known


def test_the_example_profile_and_the_example_fleet_are_valid():
    profile, fleet, *_ = map(parse_yaml, examples("device-profiles.md"))
    assert validated(DeviceProfile, profile).name == "my-board"
    assert sum(validated(FleetGroup, group).share for group in fleet["fleet"]) == 1
