"""HTML from the templates in ``templates``. Jinja escapes every text: names contain any character."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from edgefl.wording import escape

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **data: Any) -> str:
    """A template, such as ``page.html.jinja``, with its variables; a missing one is an error."""
    return _environment().get_template(template).render(data)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("edgefl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else escape(str(value), keep="\n\t"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies |= {"json.dumps_function": _json, "json.dumps_kwargs": {"separators": (",", ":")}}
    environment.filters["prose"] = prose
    environment.globals["file"] = file
    return environment


def file(name: str) -> str:
    """The text of a file next to the templates."""
    return (files("edgefl.report") / "templates" / name).read_text(encoding="utf-8")


def prose(words: str) -> str:
    """A sentence without a line break between a number and its sign or unit.

    >>> prose("95.2 ± 0.3 %").count(" ")
    0
    """
    held = re.sub(r" (?=[±\[])|(?<=±) ", "\u00a0", words)
    return re.sub(r"(?<=[\d\]]) (?=(%|[kMGT]?(B|J|s|FLOP|min|h|days)\b))", "\u00a0", held)


def _escaped(data: Any) -> Any:
    if isinstance(data, str):
        return escape(data, keep="\n\t")
    if isinstance(data, Mapping):
        return {_escaped(key): _escaped(value) for key, value in data.items()}
    return [_escaped(each) for each in data] if isinstance(data, list | tuple) else data


def _json(data: Any, **options: Any) -> str:
    """Data for a script element; Jinja's filter ``tojson`` escapes the signs that could end the element."""
    return json.dumps(_escaped(data), allow_nan=False, **options)
