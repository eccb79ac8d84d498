"""The ``data`` section of a scenario: any registered data set, identified by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefl.data.spec import DATA_SETS, DataSpec
from edgefl.errors import UserError
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
    if "name" not in value:
        raise UserError(f"this key is missing; expected one of: {', '.join(DATA_SETS.names())}", field="name")
    name = value["name"]
    if not isinstance(name, str):
        raise UserError(f"expected the name of a data set, found {shown(name)}", field="name")
    try:
        part = DATA_SETS[name]
    except UserError as error:
        raise error.located(field="name") from None
    return validated(part, dict(value))


def data_sets_schema() -> dict[str, Any]:
    """The JSON schema of ``data``, with the options of every data set."""
    return {"oneOf": list(DATA_SETS.of_each(_schema).values())}


def _schema(name: str, part: type[DataSpec]) -> dict[str, Any]:
    schema = part.model_json_schema(mode="validation")
    schema["properties"]["name"] = {**schema["properties"]["name"], "const": name}
    schema["required"] = sorted({"name", *schema.get("required", [])})
    return schema
