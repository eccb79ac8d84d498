"""Every field that a scenario's JSON schema knows, by a path that names each kind of part on the way.

``fleet[].availability<diurnal>.peak`` is a field of the availability of kind diurnal, ``network.links.*.up`` one of
each link. What a family of parts declares once for all its kinds stands without a kind: ``data.clients``.
"""

from __future__ import annotations

from typing import Any

from edgefl.data.own_data import Encoded, OwnArrays
from edgefl.data.spec import DataSpec
from edgefl.methods.build import RESERVED
from edgefl.models.registry import ModelSpec
from edgefl.scenario.loading import json_schema

TAGS = ("kind", "name", "method")
"""Keys that tell the kinds of a family apart."""

DECLARED_ONCE = {
    "data": {*DataSpec.model_fields, *OwnArrays.model_fields, *Encoded.model_fields} - {"name"},
    "model": set(ModelSpec.model_fields),
    "methods[]": set(RESERVED) - {"method"},
}
"""Fields that all kinds of a family have from what they are all built on."""


def fields() -> set[str]:
    """The path of every field of a scenario that has no fields itself."""
    schema = json_schema()
    return _leaves(schema, schema["$defs"], "", frozenset())


def _leaves(node: dict[str, Any], definitions: dict[str, Any], path: str, inside: frozenset[str]) -> set[str]:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return set() if name in inside else _leaves(definitions[name], definitions, path, inside | {name})
    found: set[str] = set()
    for alternative in _alternatives(node):
        found |= _leaves(alternative, definitions, path, inside)
    kind = _kind(node)
    for name, inner in node.get("properties", {}).items():
        own = f"{path}<{kind}>" if kind and name not in DECLARED_ONCE.get(path, ()) else path
        found |= _leaves(inner, definitions, f"{own}.{name}" if own else name, inside)
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        inner = node.get(key)
        if isinstance(inner, dict) and inner.keys() - {"title"}:
            found |= _leaves(inner, definitions, path + suffix, inside)
    # A part without any option, and whatever is a plain value.
    return found or {path}


def _alternatives(node: dict[str, Any]) -> list[dict[str, Any]]:
    """What a field may be; without null, conditions on keys, and the bare names of parts that may also be mappings."""
    choices = [
        choice for key in ("anyOf", "oneOf", "allOf") for choice in node.get(key, ()) if set(choice) != {"required"}
    ]
    mappings = any("properties" in choice or "$ref" in choice for choice in choices)
    names = [choice for choice in choices if mappings and set(choice) <= {"enum", "type"} and "enum" in choice]
    return [choice for choice in choices if choice.get("type") != "null" and choice not in names]


def _kind(node: dict[str, Any]) -> str | None:
    """The kind of part that a mapping is, where it says so by a constant."""
    properties = node.get("properties", {})
    return next((str(properties[tag]["const"]) for tag in TAGS if "const" in properties.get(tag, {})), None)
