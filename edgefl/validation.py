"""Turn pydantic's list of validation errors into one message for the user.

:func:`validated` checks plain data against a model; :func:`user_error` writes the message: dotted paths with list
indices, what was found, what was expected, the nearest valid key or choice, in at most five lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgefl.errors import UserError, nearest
from edgefl.validation_problem import Problem, chosen, without_echoes

MAXIMUM_LINES = 5

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], data: Any, *, file: str | None = None, field: str | None = None) -> Model:
    """``data`` as an instance of ``model``.

    Args:
        model: the model of the data.
        data: plain data, as read from YAML.
        file: the file of the data, for messages.
        field: the dotted path of ``data`` within that file, for messages.

    Raises:
        UserError: the data is not a valid ``model``; see :func:`user_error`.
    """
    try:
        return model.model_validate(data)
    except UnicodeEncodeError:  # pydantic encodes the messages of checks, and a text in them is half a character
        place = ".".join(part for part in (field, *map(str, _half_character(data) or ())) if part)
        raise UserError("expected text, found half of a surrogate pair", file=file, field=place or None) from None
    except ValidationError as error:
        raise user_error(error, file, model=model, field=field) from None
    except UserError as error:
        raise error.located(file=file, field=field) from None


def _half_character(data: Any) -> tuple[str | int, ...] | None:
    """The path of the first text, or of the mapping with the first key, that contains half of a surrogate pair."""
    if isinstance(data, str):
        return () if any("\ud800" <= character <= "\udfff" for character in data) else None
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list | tuple) else ()
    for key, value in items:
        if isinstance(key, str) and _half_character(key) is not None:
            return ()
        inside = _half_character(value)
        if inside is not None:
            return (key, *inside)
    return None


def first_repeated(values: Sequence[Any]) -> tuple[Any, int] | None:
    """The first value that occurs a second time, and where; None if all are different.

    >>> first_repeated([3, 1, 3]), first_repeated([[1], [2]])
    ((3, 2), None)
    """
    seen = set()
    for index, value in enumerate(values):
        key = value if isinstance(value, int | float | str) or value is None else repr(value)
        if key in seen:
            return value, index
        seen.add(key)
    return None


def user_error(
    error: ValidationError, file: str | None = None, *, model: Any = None, field: str | None = None
) -> UserError:
    """A validation error as an error for the user.

    Args:
        error: pydantic's error.
        file: the file of the data.
        model: the model (or any type) that was validated; it is needed to suggest valid keys and to remove the names of
            union members from paths.
        field: the dotted path of the validated data within the file.

    >>> class Point(BaseModel, extra="forbid"):
    ...     north: float
    >>> try:
    ...     Point.model_validate({"nord": 1})
    ... except ValidationError as error:
    ...     print(user_error(error, "a.yaml", model=Point))
    a.yaml: nord: unknown key; did you mean 'north'?
    """
    problems = chosen([Problem.of(details, model) for details in _flattened(error)])
    lines = list(dict.fromkeys((_dotted(field, problem), _sentence(problem)) for problem in without_echoes(problems)))
    if len(lines) == 1:
        path, sentence = lines[0]
        return UserError(sentence, field=path or None, file=file)
    # "and 1 more" would take as much space as the line itself.
    listed = lines if len(lines) <= MAXIMUM_LINES + 1 else lines[:MAXIMUM_LINES]
    shown = [f"{path}: {sentence}" if path else sentence for path, sentence in listed]
    if len(listed) < len(lines):
        shown.append(f"and {len(lines) - len(listed)} more")
    return UserError("\n  ".join([f"{len(lines)} problems", *shown]), file=file)


def _flattened(error: ValidationError) -> Iterator[ErrorDetails]:
    """Each error; if a validator raised the error of another model, the inner errors replace the validator's own."""
    for details in error.errors(include_url=False):
        inner = details.get("ctx", {}).get("error")
        if isinstance(inner, ValidationError):
            for nested in _flattened(inner):
                yield {**nested, "loc": (*details["loc"], *nested["loc"])}
        else:
            yield details


_EXPECTED = {
    "string_type": "text",
    "string_unicode": "text without halves of surrogate pairs",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "iterable_type": "a list",
    "date_type": "a date such as 2026-11-21",
    "date_parsing": "a date such as 2026-11-21",
    "date_from_datetime_parsing": "a date such as 2026-11-21",
    "date_from_datetime_inexact": "a date without a time",
    "none_required": "null",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "multiple_of": "a multiple of {multiple_of}",
    "too_short": "at least {min_length} item(s)",
    "too_long": "at most {max_length} item(s)",
    "string_too_short": "text of at least {min_length} character(s)",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def _expected(details: ErrorDetails) -> str:
    context = {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in details.get("ctx", {}).items()
    }
    form = _EXPECTED.get(details["type"])
    if form is not None:
        return form.format(**context)
    return re.sub(r"^(Input|Value|Keys) should be (an? valid )?", "", details["msg"]).rstrip(".")


def _sentence(problem: Problem) -> str:
    details = problem.details
    kind, context = details["type"], details.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error") or details["msg"])
    found = f"found {shown(details['input'])}"
    if problem.alternatives:
        return f"expected {' or '.join(dict.fromkeys(map(_expected, problem.alternatives)))}, {found}"
    sentences: dict[str, Callable[[], str]] = {
        "extra_forbidden": lambda: "; ".join(
            ["unknown key", *([nearest(str(problem.path[-1]), problem.keys)] if problem.keys else [])]
        ),
        "missing": lambda: "this key is missing",
        "invalid_key": lambda: f"expected a key that is text, {found}",
        "literal_error": lambda: _choice(details["input"], context["expected"]),
        "enum": lambda: _choice(details["input"], context["expected"]),
        "union_tag_invalid": lambda: _choice(context["tag"], context["expected_tags"]),
        "union_tag_not_found": lambda: "this key is missing; the meaning of the other keys depends on it",
        "too_short": lambda: f"expected {_expected(details)}, found {context['actual_length']}",
        "too_long": lambda: f"expected {_expected(details)}, found {context['actual_length']}",
    }
    if kind in sentences:
        return sentences[kind]()
    if kind in _EXPECTED or details["msg"].startswith("Input should be"):
        return f"expected {_expected(details)}, {found}"
    return details["msg"]


def _choice(found: object, expected: str) -> str:
    choices = re.findall(r"'([^']*)'", expected)
    if not choices:
        return f"expected {expected}, found {shown(found)}"
    return f"unknown choice {shown(found)}; {nearest(str(found), choices)}"


def shown(value: object) -> str:
    """A value as in YAML, cut to one line.

    >>> shown(True), shown("5g"), shown({"low": 1}), shown([1, 2])
    ('true', "'5g'", 'a mapping', 'a list')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple | set | frozenset):
        return "a list" if value else "an empty list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dotted(root: str | None, problem: Problem) -> str:
    return ".".join([*([root] if root else []), *(str(name) for name in problem.path)])
