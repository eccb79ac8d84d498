"""Turn pydantic's list of validation errors into one message for the user.

The message has dotted paths with list indices, what was found, what was expected, and the nearest valid key or choice,
in at most five lines. Mappings of several kinds are told apart by a tag. Of other unions (a number or a mapping, a text
or a list) pydantic reports an error for every member, and puts the member's label into the path. The user wrote only
one thing: paths contain only keys of the file, and only the member that was meant is described.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgefl.errors import UserError, misspelt, nearest
from edgefl.wording import grouped

MAXIMUM_LINES = 5

Model = TypeVar("Model", bound=BaseModel)
Made = TypeVar("Made")


def validated(
    model: type[Model], data: Any, *, file: str | None = None, field: str | None = None, known: tuple[str, ...] = ()
) -> Model:
    """``data`` as an instance of ``model``; ``file`` and ``field`` (a dotted path) are its place, for messages.

    ``known`` are keys next to those of ``data`` that somebody else has read.

    >>> from edgefl.options import Options
    >>> class Point(Options):
    ...     north: float
    >>> validated(Point, {"nord": 1}, file="a.yaml")
    Traceback (most recent call last):
    edgefl.errors.UserError: a.yaml: nord: unknown key; did you mean 'north'?
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = _chosen([_Problem.of(details, data) for details in error.errors(include_url=False)])
        problems = [each if len(each.path) > 1 else replace(each, keys=(*each.keys, *known)) for each in problems]
        raise _user_error(problems, file, field) from None
    except UserError as error:
        raise error.located(file=file, field=field) from None


def as_validator(read: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """A function that raises :class:`UserError` as a validator of pydantic, which adds the place of the value."""

    @wraps(read)
    def validator(value: Any) -> Made:
        try:
            return read(value)
        except UserError as error:
            raise ValueError(str(error)) from None

    return validator


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


def _user_error(problems: list[_Problem], file: str | None, field: str | None) -> UserError:
    root = [field] if field else []
    found = ((".".join(map(str, [*root, *each.path])), _sentence(each)) for each in _without_echoes(problems))
    lines = list(dict.fromkeys(found))
    if len(lines) == 1:
        path, sentence = lines[0]
        return UserError(sentence, field=path or None, file=file)
    # "and 1 more" would take as much space as the line itself.
    listed = lines if len(lines) <= MAXIMUM_LINES + 1 else lines[:MAXIMUM_LINES]
    shown = [f"{path}: {sentence}" if path else sentence for path, sentence in listed]
    if len(listed) < len(lines):
        shown.append(f"and {len(lines) - len(listed)} more")
    return UserError("\n  ".join([f"{len(lines)} problems", *shown]), file=file)


@dataclass(frozen=True)
class _Problem:
    """One validation error.

    ``path`` are keys and indices from the data's root, as in the file; ``keys`` the valid ones next to an unknown one.
    ``alternatives`` are the errors of all members of a union, if none fits better than the others.
    """

    path: tuple[int | str, ...]
    details: ErrorDetails
    keys: tuple[str, ...] = ()
    alternatives: tuple[ErrorDetails, ...] = ()

    @staticmethod
    def of(details: ErrorDetails, data: Any) -> _Problem:
        path: list[int | str] = []
        for place, name in enumerate(details["loc"], start=1):
            there, value = _found(data, name)
            own = place == len(details["loc"]) and details["type"] in ("extra_forbidden", "missing")
            if own or there:  # else the label of a union's member
                path.append(name)
                data = value
        if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
            # A discriminator function is named after the key that it reads: _kind() reads kind.
            path.append(str(details["ctx"]["discriminator"]).strip("'").removesuffix("()").lstrip("_"))
        return _Problem(tuple(path), details, details.get("ctx", {}).get("keys", ()))


def _found(data: Any, name: int | str) -> tuple[bool, Any]:
    """True if a step of a location is a key or index of the data, and the value there."""
    if isinstance(data, Mapping):
        if data.get("kind") == name:  # the label of a union's member, even if it is a key too
            return False, None
        return next(((True, value) for key, value in data.items() if str(key) == str(name)), (False, None))
    if isinstance(data, list | tuple) and isinstance(name, int) and name < len(data):
        return True, data[name]
    return False, None


def _chosen(problems: list[_Problem]) -> list[_Problem]:
    """Keep, for each union, the problems of the member that was meant: the one that was read furthest."""
    inside = {problem.path[:depth] for problem in problems for depth in range(len(problem.path))}
    chosen = []
    for path, found in grouped((problem.path, problem) for problem in problems).items():
        explained = [problem for problem in found if not problem.details["type"].endswith("_type")]
        if explained:
            chosen.append(explained[0])
        elif path not in inside:
            chosen.append(replace(found[0], alternatives=tuple(problem.details for problem in found)))
    return chosen


def _without_echoes(problems: list[_Problem]) -> list[_Problem]:
    """Remove a missing key that is misspelt next to it, and a list too short because invalid items do not count."""
    meant = {
        (*problem.path[:-1], key)
        for problem in problems
        if problem.details["type"] == "extra_forbidden"
        for key in problem.keys
        if nearest(str(problem.path[-1]), problem.keys) == f"did you mean '{key}'?"
    }
    inside = {problem.path[:depth] for problem in problems for depth in range(len(problem.path))}
    echoed = {"missing": meant, "too_short": inside}
    return [problem for problem in problems if problem.path not in echoed.get(problem.details["type"], ())]


_EXPECTED = {
    kind: text
    for text, kinds in {
        "text": "string_type",
        "a whole number": "int_type int_parsing int_from_float",
        "a smaller whole number": "int_parsing_size",
        "a number": "float_type float_parsing",
        "a finite number": "finite_number",
        "true or false": "bool_type bool_parsing",
        "a mapping": "model_type model_attributes_type dataclass_type dict_type mapping_type",
        "a list": "list_type tuple_type set_type iterable_type",
        "a date such as 2026-11-21": "date_type date_parsing date_from_datetime_parsing",
        "a date without a time": "date_from_datetime_inexact",
        "null": "none_required",
        "more than {gt}": "greater_than",
        "{ge} or more": "greater_than_equal",
        "less than {lt}": "less_than",
        "{le} or less": "less_than_equal",
        "a multiple of {multiple_of}": "multiple_of",
        "at least {min_length} item(s)": "too_short",
        "at most {max_length} item(s)": "too_long",
        "text of at least {min_length} character(s)": "string_too_short",
        "text of at most {max_length} characters": "string_too_long",
        "text of the form {pattern}": "string_pattern_mismatch",
    }.items()
    for kind in kinds.split()
}
"""What was expected, by pydantic's type of an error."""


def _expected(details: ErrorDetails) -> str:
    context = {name: f"{each:g}" if isinstance(each, float) else each for name, each in details.get("ctx", {}).items()}
    form = _EXPECTED.get(details["type"])
    if form is not None:
        return form.format(**context)
    return re.sub(r"^(Input|Value|Keys) should be (an? valid )?", "", details["msg"]).rstrip(".")


def _sentence(problem: _Problem) -> str:
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
        "union_tag_not_found": lambda: (
            "this key is missing; the meaning of the other keys depends on it"
            + misspelt(str(problem.path[-1]), details["input"])
        ),
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
