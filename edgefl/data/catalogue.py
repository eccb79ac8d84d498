"""The ``data`` section of a scenario: any registered data set, identified by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefl.data.spec import DATA_SETS, DataSpec
from edgefl.errors import UserError
from edgefl.part_choice import part_of, tagged
from edgefl.validation import shown, validated


def data_set(value: Any) -> DataSpec:
    """The data set described by a mapping with ``name`` and options.

    Raises:
        UserError: unknown name or option; the message states the key.

    >>> data_set({"name": "digits", "clients": 10}).clients
    10
    """
    if isinstance(value, DataSpec):
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"expected a mapping, found {shown(value)}")
    name, part = part_of(DATA_SETS, value, "name")
    return validated(part, {**value, "name": name})


def data_sets_schema() -> dict[str, Any]:
    """The JSON schema of ``data``, with the options of every data set."""
    return {"oneOf": list(DATA_SETS.of_each(_schema).values())}


def _schema(name: str, part: type[DataSpec]) -> dict[str, Any]:
    return tagged(part.model_json_schema(mode="validation"), "name", name, part)
