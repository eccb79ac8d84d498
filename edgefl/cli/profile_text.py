"""A device profile as the text of a profile file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgefl.units import dimension_of, spelt

if TYPE_CHECKING:
    from pydantic import BaseModel


def profile_yaml(data: Mapping[str, Any]) -> str:
    """The data of a profile as YAML, bounds side by side."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 120
    yaml.dump(_bounds_in_a_line(data), text)
    return text.getvalue()


def with_units(said: BaseModel, data: Mapping[str, Any]) -> dict[str, Any]:
    """What a profile, or a part of it, holds, each quantity with its unit.

    Args:
        said: the profile or part.
        data: the same as plain data.
    """
    fields = type(said).model_fields
    found = {}
    for name, inner in data.items():
        types = (fields[name].annotation, *fields[name].metadata)
        dimension = next((each for each in map(dimension_of, types) if each), None)
        # An estimate's bounds are in the unit of its nominal figure.
        found[name] = _spelt(getattr(said, name), inner, dimension, getattr(said, "nominal", None))
    return found


def _spelt(said: Any, data: Any, dimension: str | None, beside: float | None = None) -> Any:
    if isinstance(said, float) and dimension is not None:
        return spelt(said, dimension, beside=beside)
    if hasattr(type(said), "model_fields"):
        return with_units(said, data)
    if isinstance(said, Mapping):
        return {key: _spelt(said[key], inner, dimension) for key, inner in data.items()}
    if isinstance(said, tuple):
        return [_spelt(each, inner, dimension) for each, inner in zip(said, data, strict=True)]
    return tidy(data)


def tidy(data: Any) -> Any:
    """Numbers to twelve digits: 25 us are 2.5e-05 s, not 2.4999999999999998e-05."""
    if isinstance(data, dict):
        return {key: tidy(inner) for key, inner in data.items()}
    if isinstance(data, list):
        return [tidy(inner) for inner in data]
    return float(f"{data:.12g}") if isinstance(data, float) else data


def _bounds_in_a_line(data: Any) -> Any:
    """Low, nominal and high side by side, as people write them."""
    from ruamel.yaml.comments import CommentedMap

    if isinstance(data, list):
        return [_bounds_in_a_line(each) for each in data]
    if not isinstance(data, dict):
        return data
    made = CommentedMap({key: _bounds_in_a_line(each) for key, each in data.items()})
    if set(data) == {"low", "nominal", "high"}:
        made.fa.set_flow_style()
    return made
