"""The location of a validation error, and the choice of the relevant errors of a union.

Pydantic reports an error for every member of a union, and puts the member's label into the path. The user wrote only
one thing: the path should contain only keys of the file, and the message should describe only the most likely member.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from edgefl.errors import nearest

Step = tuple[Literal["key", "label", "model"], int | str]
"""A key or index of the file; or the label of a union member, of a model or of another type."""


@dataclass(frozen=True)
class Problem:
    """One validation error: its path, separated from the labels of union members, and the expected type."""

    steps: tuple[Step, ...]
    details: ErrorDetails
    keys: tuple[str, ...]
    """The valid keys at the place of the last one of the path, if known."""
    alternatives: tuple[ErrorDetails, ...] = ()
    """The errors of all members of a union, if none of them fits better than the others."""

    @staticmethod
    def of(details: ErrorDetails, model: Any) -> Problem:
        """The problem that pydantic's details describe, for data validated as ``model`` (``None``: unknown)."""
        steps, keys = _walked(details["loc"], model)
        if details["type"] == "extra_forbidden":  # a key of the file, even if it looks like a label: "[a]"
            steps = (*steps[:-1], ("key", details["loc"][-1]))
        if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
            # A discriminator function is named after the key that it reads: _kind() reads kind.
            key = str(details["ctx"]["discriminator"]).strip("'").removesuffix("()").lstrip("_")
            steps = (*steps, ("key", key))
        return Problem(steps, details, keys)

    @property
    def path(self) -> tuple[int | str, ...]:
        """Keys and indices from the data's root, as in the file."""
        return tuple(name for kind, name in self.steps if kind == "key")


def _members(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, without ``Annotated``, ``Optional`` and aliases."""
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
    """Annotations by the name used in a file."""
    return {
        (info.validation_alias if isinstance(info.validation_alias, str) else info.alias) or name: info.annotation
        for name, info in model.model_fields.items()
    }


def _inside(annotation: Any, name: int | str) -> list[Any] | None:
    """The alternatives at ``name`` within ``annotation``, or ``None`` if it has no such place."""
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
    """The union members that a label names: a class by its name, a tagged class by its tag."""
    certain, possible = [], []
    for member in members:
        if not _is_model(member):
            continue
        choices = [_literal_values(info.annotation) for info in member.model_fields.values()]
        # A model with its own validators is labelled function-after[_check(), Name].
        if (name,) in choices or re.search(rf"(?:^|[ \[]){re.escape(member.__name__)}\]*$", str(name)):
            certain.append(member)
        elif any(name in values for values in choices):
            # Either one of several tags of this member, or an equal choice of another option.
            possible.append(member)
    return certain or possible


def _literal_values(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _walked(location: tuple[int | str, ...], model: Any) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps of a location, and the valid keys at the place of its last one."""
    members = _members(model) if model is not None else []
    steps: list[Step] = []
    parents: list[Any] = []
    for name in location:
        parents = members
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
    models = [member for member in parents if _is_model(member)]
    return tuple(steps), tuple(dict.fromkeys(key for member in models for key in _fields(member)))


def _is_technical(name: int | str) -> bool:
    """Whether it is a label such as ``function-before[validate(), float]`` or ``[key]``, which no file contains."""
    return isinstance(name, str) and re.fullmatch(r"[a-z-]*\[.*\]", name) is not None


def chosen(problems: list[Problem]) -> list[Problem]:
    """Keep, for each union, the problems of the member that fits best."""
    while True:
        depths = [depth for problem in problems if (depth := _first_label(problem)) is not None]
        if not depths:
            return problems
        depth = min(depths)
        unions: dict[tuple[Step, ...], dict[Step, list[Problem]]] = {}
        rest = []
        for problem in problems:
            if _first_label(problem) == depth:
                members = unions.setdefault(problem.steps[:depth], {})
                members.setdefault(problem.steps[depth], []).append(problem)
            else:
                rest.append(problem)
        for members in unions.values():
            rest += [
                replace(problem, steps=problem.steps[:depth] + problem.steps[depth + 1 :])
                for problem in _likeliest(list(members.values()), depth)
            ]
        problems = rest


def _first_label(problem: Problem) -> int | None:
    return next((index for index, (kind, _) in enumerate(problem.steps) if kind != "key"), None)


def _likeliest(members: list[list[Problem]], depth: int) -> list[Problem]:
    """Prefer a member that failed inside to one that failed as a whole, then fewest problems; else merge failures."""
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
    return [Problem(first.steps, first.details, (), tuple(problem.details for problem in flat))]


def without_echoes(problems: list[Problem]) -> list[Problem]:
    """Remove problems that only follow from another problem.

    These are a missing key if an unknown key next to it is a misspelling of it, and a list that is too short because
    its invalid items do not count.
    """
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
