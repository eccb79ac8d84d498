"""docs/device-profiles.md: its examples work, and it names every field."""

import doctest
import re
from pathlib import Path

from pydantic import BaseModel
from ruamel.yaml import YAML

from edgefl.fleet import DeviceProfile, FleetGroup, profile_names
from edgefl.fleet.profile import Load
from edgefl.validation import validated

PAGE = Path(__file__).parents[2] / "docs" / "device-profiles.md"


def yaml_examples():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [YAML(typ="safe", pure=True).load(block) for block in blocks]


def test_the_example_profile_is_valid():
    assert validated(DeviceProfile, yaml_examples()[0]).name == "my-board"


def test_the_example_fleet_is_valid_and_its_shares_sum_to_one():
    groups = [validated(FleetGroup, group) for group in yaml_examples()[1]["fleet"]]
    assert sum(group.share for group in groups) == 1


def test_the_python_example_prints_what_it_says():
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 5
    assert result.failed == 0


def fields(model, prefix=""):
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not Load:
            yield from fields(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_field_stands_in_the_table():
    table = PAGE.read_text(encoding="utf-8")
    for path in fields(DeviceProfile):
        if path.startswith("power.radio.up"):
            assert path.rpartition(".")[2] in table
        else:
            assert f"`{path}`" in table, path


def test_the_number_of_shipped_profiles_is_right():
    assert "thirty-two" in PAGE.read_text(encoding="utf-8")
    assert len(profile_names()) == 32
