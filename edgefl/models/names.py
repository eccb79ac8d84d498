"""Tensors by patterns of names: ``head`` and ``layer1.*`` in a scenario."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from edgefl.errors import UserError


def matching(names: Iterable[str], patterns: Iterable[str], *, field: str, what: str = "parameters") -> set[str]:
    """The names that patterns mean: a tensor's own name or that of a module that contains it; ``*`` is any text.

    Args:
        names: the names of tensors.
        patterns: the patterns.
        field: the option of the patterns, for messages.
        what: what the names are those of, for messages.

    Raises:
        UserError: a pattern means no name.

    >>> sorted(matching(["head.weight", "head.bias", "stem.weight"], ["head"], field="trainable"))
    ['head.bias', 'head.weight']
    """
    known, chosen = list(names), set[str]()
    for pattern in patterns:
        found = [name for name in known if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            modules = ", ".join(dict.fromkeys(name.partition(".")[0] for name in known))
            raise UserError(f"'{pattern}' names no {what}; expected submodules, such as: {modules}", field=field)
        chosen.update(found)
    return chosen
