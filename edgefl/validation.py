"""From pydantic's list of complaints to one message that a person can act on.

:func:`validated` checks plain data against a model; :func:`user_error` does the translation: dotted paths with list
indices, what was found, what was expected, the nearest valid key or choice, at most five lines.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgefl.errors import UserError, nearest

MAXIMUM_LINES = 5

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], data: Any, *, file: str | None = None, field: str | None = None) -> Model:
    """``data`` as an instance of ``model``.

    Args:
        model: what the data should be.
        data: plain data, as read from YAML.
        file: the file that it comes from, for messages.
        field: the dotted path of ``data`` within that file, for messages.

    Raises:
        UserError: the data is not a valid ``model``; see :func:`user_error`.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise user_error(error, file, model=model, field=field) from None
    except UserError as error:
        raise error.located(file=file, field=field) from None


def user_error(
    error: ValidationError, file: str | None = None, *, model: Any = None, field: str | None = None
) -> UserError:
    """What a person needs to know of a validation error.

    Args:
        error: pydantic's error.
        file: the file that the data comes from.
        model: the model (or any type) that was validated; with it, unknown keys get the nearest valid one, and the
            names of union members leave the paths.
        field: the dotted path of the validated data within the file.

    >>> class Point(BaseModel, extra="forbid"):
    ...     north: float
    >>> try:
    ...     Point.model_validate({"nord": 1})
    ... except ValidationError as error:
    ...     print(user_error(error, "a.yaml", model=Point))
    a.yaml: nord: unknown key; did you mean 'north'?
    """
    problems = _chosen([_Problem.of(details, model) for details in error.errors(include_url=False)])
    lines = list(dict.fromkeys((_dotted(field, problem), _sentence(problem)) for problem in _without_echoes(problems)))
    if len(lines) == 1:
        path, sentence = lines[0]
        return UserError(sentence, field=path or None, file=file)
    shown = [f"{path}: {sentence}" if path else sentence for path, sentence in lines[:MAXIMUM_LINES]]
    if len(lines) > MAXIMUM_LINES:
        shown.append(f"and {len(lines) - MAXIMUM_LINES} more")
    return UserError("\n  ".join([f"{len(lines)} problems", *shown]), file=file)


Step = tuple[Literal["key", "label", "model"], int | str]
"""A key or index of the file; or the label of a union member, of a model or of another type."""


@dataclass(frozen=True)
class _Problem:
    """One complaint: its path, told apart from the labels of union members, and the type that was expected there."""

    steps: tuple[Step, ...]
    details: ErrorDetails
    keys: tuple[str, ...]
    """The valid keys beside the last one of the path, where known."""

    @staticmethod
    def of(details: ErrorDetails, model: Any) -> _Problem:
        steps, keys = _walked(details["loc"], model)
        if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
            steps = (*steps, ("key", str(details["ctx"]["discriminator"]).strip("'")))
        return _Problem(steps, details, keys)

    @property
    def path(self) -> tuple[int | str, ...]:
        return tuple(name for kind, name in self.steps if kind == "key")


# --- where: the location, told apart from the labels of union members -------------------------------------------------


def _members(annotation: Any) -> list[Any]:
    """The alternatives that an annotation stands for, without ``Annotated``, ``Optional`` and aliases."""
    if hasattr(annotation, "__value__"):  # type X = ... (TypeAliasType)
        return _members(annotation.__value__)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [] if annotation is type(None) else [annotation]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _fields(model: Any) -> dict[str, Any]:
    """Annotations by the name that a file uses."""
    return {
        (info.validation_alias if isinstance(info.validation_alias, str) else info.alias) or name: info.annotation
        for name, info in model.model_fields.items()
    }


def _inside(annotation: Any, name: int | str) -> list[Any] | None:
    """The alternatives at ``name`` within ``annotation``, or nothing where it has no such place."""
    if _is_model(annotation):
        fields = _fields(annotation)
        return _members(fields[str(name)]) if name in fields else None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not isinstance(origin, type) or not arguments:
        return None
    if issubclass(origin, Mapping):
        return _members(arguments[1])
    if issubclass(origin, tuple) and isinstance(name, int) and arguments[-1] is not Ellipsis:
        return _members(arguments[name]) if name < len(arguments) else None
    if issubclass(origin, Iterable) and isinstance(name, int):
        return _members(arguments[0])
    return None


def _labelled(members: Sequence[Any], name: int | str) -> list[Any]:
    """The union members that a label names: a class by its name, a tagged one by the tag that it carries."""
    chosen = []
    for member in members:
        if not _is_model(member):
            continue
        tags = {tag for info in member.model_fields.values() for tag in _literal_values(info.annotation)}
        # A model with validators of its own is labelled function-after[_check(), Name].
        if name in tags or re.search(rf"(?:^|[ \[]){re.escape(member.__name__)}\]*$", str(name)):
            chosen.append(member)
    return chosen


def _literal_values(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _walked(location: tuple[int | str, ...], model: Any) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps of a location, and the keys that are valid beside its last one."""
    members = _members(model) if model is not None else []
    steps: list[Step] = []
    beside: list[Any] = []
    for name in location:
        beside = members
        labelled = _labelled(members, name) if len(members) > 1 else []
        inside = [found for member in members if (found := _inside(member, name)) is not None]
        if labelled:
            steps.append(("model", name))
            members = labelled
        elif inside:
            steps.append(("key", name))
            members = [member for found in inside for member in found]
        elif len(members) > 1 or _is_technical(name):
            steps.append(("label", name))
            members = []
        else:
            steps.append(("key", name))
            members = []
    models = [member for member in beside if _is_model(member)]
    return tuple(steps), tuple(dict.fromkeys(key for member in models for key in _fields(member)))


def _is_technical(name: int | str) -> bool:
    """Labels such as ``function-before[validate(), float]`` and ``[key]`` never stand in a file."""
    return isinstance(name, str) and re.fullmatch(r"[a-z-]*\[.*\]", name) is not None


# --- which: of a union, only the member that the writer most likely meant ---------------------------------------------


def _chosen(problems: list[_Problem]) -> list[_Problem]:
    """Keeps, for each union, the problems of the member that came furthest."""
    while True:
        depths = [depth for problem in problems if (depth := _first_label(problem)) is not None]
        if not depths:
            return problems
        depth = min(depths)
        unions: dict[tuple[Step, ...], dict[Step, list[_Problem]]] = {}
        rest = []
        for problem in problems:
            if _first_label(problem) == depth:
                members = unions.setdefault(problem.steps[:depth], {})
                members.setdefault(problem.steps[depth], []).append(problem)
            else:
                rest.append(problem)
        for members in unions.values():
            rest += [
                _Problem(problem.steps[:depth] + problem.steps[depth + 1 :], problem.details, problem.keys)
                for problem in _likeliest(list(members.values()), depth)
            ]
        problems = rest


def _first_label(problem: _Problem) -> int | None:
    return next((index for index, (kind, _) in enumerate(problem.steps) if kind != "key"), None)


def _likeliest(members: list[list[_Problem]], depth: int) -> list[_Problem]:
    """A member that failed inside beats one that failed as a whole; then fewest problems; else the failures merged."""
    inside = [problems for problems in members if any(len(problem.steps) > depth + 1 for problem in problems)]
    if inside:
        return min(inside, key=len)
    flat = [problem for problems in members for problem in problems]
    if any(isinstance(problem.details["input"], Mapping) for problem in flat):
        flat = [problem for problem in flat if problem.steps[depth][0] == "model"] or flat
    explained = [problem for problem in flat if not problem.details["type"].endswith("_type")]
    if explained:
        return explained[:1]
    first = flat[0]
    wanted = " or ".join(dict.fromkeys(_expected(problem.details) for problem in flat))
    details = ErrorDetails(type="edgefl_union", loc=(), msg=wanted, input=first.details["input"])
    return [_Problem(first.steps, details, ())]


def _without_echoes(problems: list[_Problem]) -> list[_Problem]:
    """Leaves out a missing key that an unknown one beside it was meant to be."""
    meant = {
        (problem.path[:-1], key)
        for problem in problems
        if problem.details["type"] == "extra_forbidden"
        for key in problem.keys
        if nearest(str(problem.path[-1]), problem.keys) == f"did you mean '{key}'?"
    }
    return [
        problem
        for problem in problems
        if problem.details["type"] != "missing" or (problem.path[:-1], problem.path[-1]) not in meant
    ]


# --- what: found, expected, nearest -----------------------------------------------------------------------------------

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number that is not so large",
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
    if details["type"] == "edgefl_union":
        return details["msg"]
    return re.sub(r"^(Input|Value|Keys) should be (an? valid )?", "", details["msg"]).rstrip(".")


def _sentence(problem: _Problem) -> str:
    details = problem.details
    kind, context = details["type"], details.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error") or details["msg"])
    found = f"found {shown(details['input'])}"
    sentences: dict[str, Callable[[], str]] = {
        "extra_forbidden": lambda: "; ".join(
            ["unknown key", *([nearest(str(problem.path[-1]), problem.keys)] if problem.keys else [])]
        ),
        "missing": lambda: "this key is missing",
        "invalid_key": lambda: f"expected a key that is text, {found}",
        "literal_error": lambda: _choice(details["input"], context["expected"]),
        "enum": lambda: _choice(details["input"], context["expected"]),
        "union_tag_invalid": lambda: _choice(context["tag"], context["expected_tags"]),
        "union_tag_not_found": lambda: "this key is missing, which says what the rest means",
        "too_short": lambda: f"expected {_expected(details)}, found {context['actual_length']}",
        "too_long": lambda: f"expected {_expected(details)}, found {context['actual_length']}",
    }
    if kind in sentences:
        return sentences[kind]()
    if kind in _EXPECTED or details["msg"].startswith("Input should be") or kind == "edgefl_union":
        return f"expected {_expected(details)}, {found}"
    return details["msg"]


def _choice(found: object, expected: str) -> str:
    choices = re.findall(r"'([^']*)'", expected)
    if not choices:
        return f"expected {expected}, found {shown(found)}"
    return f"unknown choice {shown(found)}; {nearest(str(found), choices)}"


def shown(value: object) -> str:
    """A value as it would stand in YAML, cut to a line.

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


def _dotted(root: str | None, problem: _Problem) -> str:
    return ".".join([*([root] if root else []), *(str(name) for name in problem.path)])
