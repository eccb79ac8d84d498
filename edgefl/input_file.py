"""Files that a scenario names: the types of fields that name files, and functions that find them."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BaseModel

from edgefl import shipped
from edgefl.errors import UserError
from edgefl.files import user_path
from edgefl.user_code import UserCode
from edgefl.validation import as_validator
from edgefl.wording import with_article

Named = Literal["file", "folder", "traces", "code"]
"""The kinds of what a field can name."""


class _Names(NamedTuple):
    what: Named


@as_validator
def _checked_code(reference: str) -> str:
    UserCode.of(reference)
    return reference


InputFile = Annotated[str, _Names("file")]
"""The type of an option that names a file which a run reads; also for the options of plug-ins.

A digest of the file's contents is stored when the run begins, and checked each time the file is read again.
"""

InputFolder = Annotated[str, _Names("folder")]
"""The type of an option of a data set that names a folder; the digest of the data stands for its contents."""

InputTraces = Annotated[str, _Names("traces")]
"""The type of an option that names a file of network traces, a folder of such files, or traces shipped with edgefl.

A digest of what is read is stored, as for :data:`InputFile`.
"""

InputCode = Annotated[str, _Names("code"), AfterValidator(_checked_code)]
"""The type of an option that names an object in a Python file, ``FILE.py:NAME``; a digest of the file is stored."""


EXISTS: Mapping[str, Callable[[Path], bool]] = {
    "file": os.path.isfile,
    "folder": os.path.isdir,
    "traces": lambda path: os.path.isfile(path) or os.path.isdir(path),
}

_ABOUT = re.compile(r"\..*|.*(readme|licen[cs]e|copying|notice)(\.\w+)?", re.IGNORECASE)


def find_input(file: str, folder: Path | None = None, *, what: Literal["file", "folder", "traces"] = "file") -> Path:
    """The path of a file or folder that a scenario names: as given, or in ``folder``, or in the folder EDGEFL_DATA.

    Shipped traces come first: write ``./NAME`` for your own.
    """
    if what == "traces" and file in (known := shipped.files("traces")):
        return known[file]
    exists = EXISTS[what]
    folders = [folder] if folder is not None else []
    if from_environment := os.environ.get("EDGEFL_DATA"):
        folders.append(user_path(from_environment))
    candidates = list(dict.fromkeys([user_path(file), *(each / file for each in folders)]))
    for candidate in candidates:
        if exists(candidate):
            return candidate
    expected = "a file or a folder" if what == "traces" else with_article(what)
    for candidate in candidates:
        if os.path.exists(candidate):
            found = "a folder" if os.path.isdir(candidate) else "a file"
            raise UserError(f"expected {expected} at '{candidate}', found {found}")
    places = " or ".join(f"'{candidate}'" for candidate in candidates)
    raise UserError(f"expected {expected} at {places}, found none")


def plain_files(folder: Path) -> list[Path]:
    """The files in a folder, sorted, without those that are hidden or about it: its readme, licence, notice."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and not _ABOUT.fullmatch(path.name)]


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's contents, in hexadecimal digits; of a folder's files, of their names and contents."""
    if path.is_dir():
        files = {each.name: digest_of_file(each) for each in plain_files(path)}
        return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None


class NamedFile(NamedTuple):
    """A file, or traces, as a scenario names them."""

    name: str
    what: Literal["file", "traces"] = "file"

    def found(self) -> Path:
        return find_input(self.name, what=self.what)


def input_files(part: Any) -> dict[str, NamedFile]:
    """The files whose digests are stored, by dotted path: those that a part and all its nested parts name.

    Parts are pydantic models, dataclasses, and mappings or sequences of them.

    >>> class Trace(BaseModel):
    ...     file: InputFile | None = None
    >>> input_files({"links": [Trace(file="a.csv"), Trace()]})
    {'links.0.file': NamedFile(name='a.csv', what='file')}
    """
    found = {}
    for path, value, what in _named(part, ""):
        if what == "code":
            found[path] = NamedFile(str(UserCode.of(value).file))
        elif what != "folder":
            found[path] = NamedFile(value, what)
    return found


def naming_fields(part: type[BaseModel]) -> dict[str, Named]:
    """The fields of a part that name files and folders, by dotted path, and what each of them names."""
    found: dict[str, Named] = {}
    for name, field in part.model_fields.items():
        for each in _parts_of_types([field.annotation, *field.metadata]):
            if isinstance(each, _Names):
                found.setdefault(name, each.what)
            elif isinstance(each, type) and issubclass(each, BaseModel):
                found |= {f"{name}.{inner}": what for inner, what in naming_fields(each).items()}
    return found


_naming = cache(naming_fields)


def code_files(part: Any) -> dict[str, Path]:
    """The Python files named by a part and all its nested parts, by dotted path."""
    return {path: UserCode.of(value).file for path, value, what in _named(part, "") if what == "code"}


def parts_of(part: Any) -> Iterator[Any]:
    """A part and all its nested parts, through the same containers as :func:`input_files`.

    >>> list(parts_of({"a": [1, 2]}))
    [{'a': [1, 2]}, [1, 2], 1, 2]
    """
    yield part
    for _, value, _ in _members(part):
        yield from parts_of(value)


def _named(part: Any, path: str) -> Iterator[tuple[str, str, Named]]:
    for name, value, what in _members(part):
        here = f"{path}.{name}" if path else name
        if what is None or not isinstance(value, str):
            yield from _named(value, here)
        else:
            yield here, value, what


def _members(part: Any) -> Iterator[tuple[str, Any, Named | None]]:
    if isinstance(part, BaseModel):
        naming = _naming(type(part))
        for name in type(part).model_fields:
            yield name, getattr(part, name), naming.get(name)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for each in dataclasses.fields(part):
            yield each.name, getattr(part, each.name), each.metadata.get("names")
    elif isinstance(part, Mapping):
        for key, value in part.items():
            yield str(key), value, None
    elif isinstance(part, list | tuple):
        for index, value in enumerate(part):
            yield str(index), value, None


def _parts_of_types(annotations: Any) -> Iterator[Any]:
    for each in annotations:
        yield each
        yield from _parts_of_types(get_args(each))
