"""The texts that the files of a run directory can contain, by the schemas with which edgefl reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from edgefl.experiment.state import State
from edgefl.record import names
from edgefl.record.clients import CLIENTS
from edgefl.record.costs import _Costs
from edgefl.record.emulation import Emulation
from edgefl.record.events import EVENTS
from edgefl.record.rounds import ROUNDS
from edgefl.record.standings import _Standings
from edgefl.record.summary import Summary
from edgefl.record.tables import SENSITIVITY

from .text_places import KEY

DATA = {
    names.SUMMARY: Summary,
    names.COSTS: _Costs,
    names.EMULATION: Emulation,
    names.STANDINGS: _Standings,
    names.STATE: State,
    names.FAULTED: State,
}
TABLES = {names.EVENTS: EVENTS, names.ROUNDS: ROUNDS, names.CLIENTS: CLIENTS, names.SENSITIVITY: SENSITIVITY}
WITHOUT_SCHEMA = {
    *(names.SCENARIO, names.FINAL_MODEL, names.CLIENT_MODELS, names.PICTURE, names.AGAINST, names.LOCK),
    *names.JOURNALS,
}
"""Files whose texts are found in the files themselves, or that have none."""

ANY = "*"
"""A key of a mapping or the number of an element, in the path of a text."""
Path = tuple[str, ...]


def texts_of(file: str) -> set[Path]:
    """The paths of all texts that a file of JSON data can contain, keys of its choice included."""
    schema = DATA[file].model_json_schema()
    return set(_texts(schema, schema, ()))


def columns_of(file: str) -> set[str]:
    """The columns of a table that contain texts."""
    return {field.name for field in TABLES[file] if _is_text(field.type)}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind)


def completed(data: Any, file: str) -> Any:
    """The data of a file with an example of each part that it lacks and that contains a text; an example of no data."""
    schema = DATA[file].model_json_schema()
    return _example(schema, schema) if data is None else _completed(data, schema, schema)


def fits(path: tuple[Any, ...], pattern: Path) -> bool:
    """Whether a text stands at a path of :func:`texts_of`."""
    return len(path) == len(pattern) and all(each in (ANY, str(part)) for part, each in zip(path, pattern, strict=True))


def _resolved(schema: Any, top: Any) -> Any:
    return top["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _texts(schema: Any, top: Any, path: Path) -> Iterator[Path]:
    schema = _resolved(schema, top)
    for each in schema.get("anyOf", ()):
        yield from _texts(each, top, path)
    if schema.get("type") == "string":
        yield path
    for key, each in schema.get("properties", {}).items():
        yield from _texts(each, top, (*path, key))
    if isinstance(schema.get("additionalProperties"), dict):
        yield (*path, ANY, KEY)
        yield from _texts(schema["additionalProperties"], top, (*path, ANY))
    for each in [schema.get("items"), *schema.get("prefixItems", ())]:
        if isinstance(each, dict):
            yield from _texts(each, top, (*path, ANY))


def _has_texts(schema: Any, top: Any) -> bool:
    return next(_texts(schema, top, ()), None) is not None  # the path of a text itself is empty


def _completed(data: Any, schema: Any, top: Any) -> Any:
    schema = _resolved(schema, top)
    for each in schema.get("anyOf", ()):
        data = _completed(data, each, top)
    if isinstance(data, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        found = {
            key: _completed(value, properties.get(key, others if isinstance(others, dict) else {}), top)
            for key, value in data.items()
        }
        for key, each in properties.items():
            if found.get(key) in (None, [], {}) and _has_texts(each, top):
                found[key] = _example(each, top)
        return found
    if isinstance(data, list):
        return [_completed(value, schema.get("items") or {}, top) for value in data]
    return data


def _example(schema: Any, top: Any) -> Any:
    schema = _resolved(schema, top)
    if "anyOf" in schema:
        return _example(max(schema["anyOf"], key=lambda each: (_has_texts(each, top), each != {"type": "null"})), top)
    if "const" in schema or "enum" in schema:
        return schema.get("const", next(iter(schema.get("enum", [None]))))
    match schema.get("type"):
        case "object":
            found = {key: _example(each, top) for key, each in schema.get("properties", {}).items()}
            if isinstance(others := schema.get("additionalProperties"), dict):
                found[_example(schema.get("propertyNames", {"type": "string"}), top)] = _example(others, top)
            return found
        case "array":
            return [_example(each, top) for each in schema.get("prefixItems", [schema.get("items", {})])]
        case "string":
            return "a text"
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 0) if "exclusiveMinimum" not in schema else 1
    return None
