"""A section that names its part by one key alone."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest

from edgefl.data import spec
from edgefl.data.sets.synthetic import Synthetic
from edgefl.data.spec import data_set, data_sets_schema
from edgefl.errors import UserError
from edgefl.options import Component
from edgefl.registry import Registry
from edgefl.scenario.components import Section


class Code(Component):
    """A part that is named by a field of its own name."""

    python: str
    width: int = 1


class Timm(Component):
    """Another, of which the field has a default."""

    timm: str = "resnet18"


class Plain(Component):
    """A part without such a field; ``timm`` is an option."""

    width: int = 2
    timm: int = 0


class CodeData(Synthetic):
    """Data that are named by a field of their own name."""

    name: Literal["python"] = "python"  # type: ignore[assignment]
    python: str


@pytest.fixture
def section():
    parts = Registry("model", package="email", group="edgefl.no_such_group")
    for name, part in (("python", Code), ("timm", Timm), ("plain", Plain)):
        parts.register(name)(part)
    return Section("name", parts)


@pytest.fixture
def data_sets(monkeypatch):
    parts = Registry("data set", package="email", group="edgefl.no_such_group")
    parts.register("python")(CodeData)
    parts.register("synthetic")(Synthetic)
    monkeypatch.setattr(spec, "DATA_SETS", parts)


def test_a_key_that_is_the_name_of_a_part_with_that_field_names_the_part(section):
    short, long = ({"python": "net.py:Net", "width": 3}, {"name": "python", "python": "net.py:Net", "width": 3})
    assert section.read(short, "model") == section.read(long, "model")
    assert section.write(section.read(short, "model")) == long
    assert section.read({"timm": "vit"}, "model").name == "timm"


def test_a_name_decides_whatever_the_other_keys_are(section):
    assert section.read({"name": "plain", "timm": 3}, "model").spec.timm == 3


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"width": 3}, r"^model\.name: this key is missing; expected one of: plain, python, timm$"),
        ({"plain": {}}, r"^model\.name: this key is missing; expected one of"),
        ({"python": "a.py:b", "timm": "vit"}, r"^model\.name: expected one model, found python and timm$"),
        ({"python": "a.py:b", "wdith": 3}, r"^model\.wdith: unknown key; did you mean 'width'\?$"),
        ({"python": 3}, r"^model\.python: expected text, found 3$"),
        ({"name": None, "python": "a.py:b"}, r"^model\.name: expected the name of a model, found null$"),
        ({"name": "timmm"}, r"^model\.name: unknown model 'timmm'; did you mean 'timm'\?$"),
    ],
)
def test_a_section_that_means_no_part_is_refused(section, value, message):
    with pytest.raises(UserError, match=message):
        section.read(value, "model")


def test_data_are_named_in_the_same_way(data_sets):
    spec = data_set({"python": "data.py:load", "classes": 3})
    assert spec == data_set({"name": "python", "python": "data.py:load", "classes": 3})
    assert type(spec) is CodeData
    assert spec.model_dump()["name"] == "python"
    with pytest.raises(UserError, match=r"^name: this key is missing; expected one of: python, synthetic$"):
        data_set({"classes": 3})


@pytest.mark.parametrize("given", list(product([False, True], repeat=4)))
def test_the_schema_accepts_what_is_read(section, data_sets, given):
    """Each combination of the keys name, python, timm and width."""
    values = {"name": "python", "python": "a.py:b", "timm": "vit", "width": 3}
    value = {key: values[key] for key, present in zip(values, given, strict=True) if present}
    for read, schema in (
        (lambda value: section.read(value, "model"), section.json_schema()),
        (data_set, data_sets_schema()),
    ):
        try:
            read(value)
        except UserError:
            assert not fits(value, schema)
        else:
            assert fits(value, schema)


def fits(value, schema):
    """Whether a mapping has the keys and the name that a schema demands."""
    choices = schema.get("anyOf", []) + schema.get("oneOf", [])
    if choices and not any(fits(value, choice) for choice in choices):
        return False
    if "enum" in schema:
        return value in schema["enum"]
    properties = schema.get("properties")
    return set(schema.get("required", ())) <= set(value) and (
        properties is None
        or (set(value) <= set(properties) and value.get("name", "?") in (properties["name"]["const"], "?"))
    )
