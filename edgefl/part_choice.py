"""Make a part from its entry in a scenario: a name, or a mapping with ``kind`` and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from edgefl.errors import UserError
from edgefl.registry import Registry
from edgefl.validation import shown, validated
from edgefl.wording import with_article

Part = TypeVar("Part", bound=BaseModel)


def part_of(parts: Registry[type[Part]], options: Mapping[str, Any], tag: str) -> tuple[str, type[Part]]:
    """The part that a mapping means, and its name.

    The name is the value of ``tag``. If this key is missing, and exactly one key is the name of a part that has a field
    of the same name, that part is meant: ``{python: data.py:load}`` is ``{name: python, python: data.py:load}``.

    Args:
        parts: the family.
        options: the mapping.
        tag: the key of the name.

    Raises:
        UserError: unknown name, or the name is missing.
    """
    try:
        name = _name_in(parts, options, tag)
        return name, parts[name]
    except UserError as error:
        raise error.located(field=tag) from None


def _name_in(parts: Registry[type[Part]], options: Mapping[str, Any], tag: str) -> str:
    if tag in options:
        names = [options[tag]]
    else:
        names = [name for name in parts.names() if name in options and names_itself(name, parts[name])]
    if not names:
        raise UserError(f"this key is missing; expected one of: {', '.join(parts.names())}")
    if len(names) > 1:
        raise UserError(f"expected one {parts.noun}, found {' and '.join(names)}")
    if not isinstance(names[0], str):
        raise UserError(f"expected the name of {with_article(parts.noun)}, found {shown(names[0])}")
    return names[0]


def names_itself(name: str, part: type[BaseModel]) -> bool:
    """Whether a part has a field of its own name, so that a mapping with this key needs no name."""
    return name in part.model_fields


def tagged(schema: Mapping[str, Any], tag: str, name: str, part: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a part's options, with the part's name under the key ``tag``.

    Args:
        schema: the schema of the options.
        tag: the key of the name.
        name: the part's name.
        part: the part.
    """
    properties = schema.get("properties", {})
    required = set(schema.get("required", [])) - {tag}
    result = {**schema, "properties": {**properties, tag: {**properties.get(tag, {}), "const": name}}}
    if names_itself(name, part):
        result["anyOf"] = [{"required": [tag]}, {"required": [name]}]
    else:
        required.add(tag)
    return {**result, "required": sorted(required)}


def chosen_part(parts: Registry[type[Part]], entry: Any) -> Part:
    """The part of a family that an entry names, with the options that it sets.

    Args:
        parts: the family.
        entry: a name, or a mapping with ``kind`` and options; see :func:`part_of`.

    Raises:
        UserError: unknown name or option; the message contains the key.
    """
    if not isinstance(entry, str | Mapping):
        raise UserError(
            f"expected the name of {with_article(parts.noun)} or a mapping with the key kind, found {shown(entry)}"
        )
    options = {"kind": entry} if isinstance(entry, str) else dict(entry)
    _, part = part_of(parts, options, "kind")
    options.pop("kind", None)
    return validated(part, options)
