"""Files that a scenario names: the type of a field that names a file, and the function that finds such files."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel

from edgefl.errors import UserError
from edgefl.user_path import user_path


class _NamesAFile:
    """Marks a type whose values are file names."""


InputFile = Annotated[str, _NamesAFile()]
"""The type of an option that names a file which a run reads; also for the options of plug-ins.

A digest of the file's contents is stored when the run begins, and checked each time the file is read again.
"""


def find_input(file: str, folder: Path | None = None) -> Path:
    """The path of a file that a scenario names: as given, or in ``folder``, or in the folder EDGEFL_DATA.

    Raises:
        UserError: it is in none of these places.
    """
    folders = [folder] if folder is not None else []
    if from_environment := os.environ.get("EDGEFL_DATA"):
        folders.append(user_path(from_environment))
    candidates = list(dict.fromkeys([user_path(file), *(each / file for each in folders)]))
    for candidate in candidates:
        if os.path.isfile(candidate):  # unlike is_file, no error for a name that is too long
            return candidate
    places = " or ".join(f"'{candidate}'" for candidate in candidates)
    raise UserError(f"expected a file at {places}, found none")


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's contents, in hexadecimal digits.

    Raises:
        UserError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None


def input_files(part: Any) -> dict[str, str]:
    """The files named by a part and all its nested parts, by dotted path.

    Args:
        part: a pydantic model, a dataclass, or a mapping or sequence of them.

    >>> class Trace(BaseModel):
    ...     file: InputFile | None = None
    >>> input_files({"links": [Trace(file="a.csv"), Trace()]})
    {'links.0.file': 'a.csv'}
    """
    return dict(_found(part, ""))


def parts_of(part: Any) -> Iterator[Any]:
    """A part and all its nested parts, through the same containers as :func:`input_files`.

    >>> list(parts_of({"a": [1, 2]}))
    [{'a': [1, 2]}, [1, 2], 1, 2]
    """
    yield part
    for _, value, _ in _members(part):
        yield from parts_of(value)


def _found(part: Any, path: str) -> Iterator[tuple[str, str]]:
    for name, value, marked in _members(part):
        here = f"{path}.{name}" if path else name
        if marked and isinstance(value, str):
            yield here, value
        else:
            yield from _found(value, here)


def _members(part: Any) -> Iterator[tuple[str, Any, bool]]:
    """The members of a part: name, value, and whether it names a file."""
    if isinstance(part, BaseModel):
        for name, field in type(part).model_fields.items():
            yield name, getattr(part, name), _marked([field.annotation, *field.metadata])
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for each in dataclasses.fields(part):
            yield each.name, getattr(part, each.name), False
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield str(key), value, False
    elif isinstance(part, list | tuple):
        for index, value in enumerate(part):
            yield str(index), value, False


def _marked(annotations: Any) -> bool:
    return any(isinstance(each, _NamesAFile) or _marked(get_args(each)) for each in annotations)
