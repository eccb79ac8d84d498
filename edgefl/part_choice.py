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


def chosen_part(parts: Registry[type[Part]], entry: Any) -> Part:
    """The part of a family that an entry names, with the options that it sets.

    Args:
        parts: the family.
        entry: a name, or a mapping with ``kind`` and options.

    Raises:
        UserError: unknown name or option; the message contains the key.
    """
    if not isinstance(entry, str | Mapping):
        raise UserError(
            f"expected the name of {with_article(parts.noun)} or a mapping with the key kind, found {shown(entry)}"
        )
    options = {"kind": entry} if isinstance(entry, str) else dict(entry)
    if "kind" not in options:
        raise UserError(f"this key is missing; expected one of: {', '.join(parts.names())}", field="kind")
    kind = options.pop("kind")
    try:
        part = parts[str(kind)]
    except UserError as error:
        raise error.located(field="kind") from None
    return validated(part, options)
