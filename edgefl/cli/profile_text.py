"""Write a device profile as the text of a profile file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgefl.units import dimension_of, spelt

if TYPE_CHECKING:
    from pydantic import BaseModel


def profile_yaml(data: Mapping[str, Any]) -> str:
    """The data of a profile as YAML, with the bounds of a figure on one line."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.dump(_bounds_in_a_line(data), text)
    return text.getvalue()


def with_units(part: BaseModel, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a profile, or of a part of it, with each quantity as text with its unit.

    Args:
        part: the profile or part.
        data: the same as plain data.
    """
    fields = type(part).model_fields
    found = {}
    for name, inner in data.items():
        types = (fields[name].annotation, *fields[name].metadata)
        dimension = next((each for each in map(dimension_of, types) if each), None)
        # An estimate's bounds are in the unit of its nominal figure.
        found[name] = _spelt(getattr(part, name), inner, dimension, getattr(part, "nominal", None))
    return found


def _spelt(value: Any, data: Any, dimension: str | None, nominal: float | None = None) -> Any:
    if isinstance(value, float) and dimension is not None:
        return spelt(value, dimension, like=nominal)
    if hasattr(type(value), "model_fields"):
        return with_units(value, data)
    if isinstance(value, Mapping):
        return {key: _spelt(value[key], inner, dimension) for key, inner in data.items()}
    if isinstance(value, tuple):
        return [_spelt(each, inner, dimension) for each, inner in zip(value, data, strict=True)]
    return tidy(data)


def tidy(data: Any) -> Any:
    """Round numbers to twelve digits: 25 us are 2.5e-05 s, not 2.4999999999999998e-05."""
    if isinstance(data, dict):
        return {key: tidy(inner) for key, inner in data.items()}
    if isinstance(data, list):
        return [tidy(inner) for inner in data]
    return float(f"{data:.12g}") if isinstance(data, float) else data


def _bounds_in_a_line(data: Any) -> Any:
    """The same data, with low, nominal and high of a figure on one line."""
    from ruamel.yaml.comments import CommentedMap

    if isinstance(data, list):
        return [_bounds_in_a_line(each) for each in data]
    if not isinstance(data, dict):
        return data
    made = CommentedMap({key: _bounds_in_a_line(each) for key, each in data.items()})
    if set(data) == {"low", "nominal", "high"}:
        made.fa.set_flow_style()
    return made
