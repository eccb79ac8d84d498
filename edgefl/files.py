"""Read and write files: every problem is one sentence, and a file is never half written.

A file is written next to its place, under the name returned by :func:`aside`, and then renamed. After a kill its path
has the old content or the new one.
"""

import json
import os
import shutil
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from edgefl.errors import UserError, one_line


def user_path(name: str | PathLike[str], *, argument: str | None = None) -> Path:
    """A path as a user gives it, with ``~`` expanded; ``argument`` is the argument that gave it, for messages."""
    if not isinstance(name, str | PathLike):
        raise UserError(f"expected a path, found {one_line(name)}", field=argument)
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise UserError(f"'{name}': no user of this name has a home folder", field=argument) from None


def read_bytes(path: str | Path, *, what: str = "a file") -> bytes:
    """The contents of a file; ``what`` is expected, for messages ("a YAML file")."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError("no such file", file=str(path)) from None
    except IsADirectoryError:
        raise UserError(f"expected {what}, found a folder", file=str(path)) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(path)) from None


def read_text(path: str | Path, *, what: str = "a file") -> str:
    """The same as text, in UTF-8 or with the mark of UTF-16; a byte-order mark is removed."""
    raw = read_bytes(path, what=what)
    try:
        return raw.decode("utf-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"expected text in UTF-8, found the byte 0x{raw[error.start]:02x} in line {line}"
        raise UserError(message, file=str(path)) from None


def read_json(path: str | Path) -> Any:
    """The contents of a JSON file; UserError names the file and the line if it cannot be read, or is not JSON."""
    return parse_json(read_text(path, what="a JSON file"), file=str(path))


def parse_json(text: str | bytes, *, file: str | None = None) -> Any:
    """The data in a JSON text; ``file`` is its source, for messages."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON (line {error.lineno}: {error.msg})", file=file) from None


def aside(path: Path) -> Path:
    """The path of a file or folder while it is written.

    >>> aside(Path("run/summary.json")).as_posix()
    'run/.summary.json.edgefl-unfinished'
    """
    return path.with_name(f".{path.name}.edgefl-unfinished")


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file for writing; it replaces ``path`` when the block ends, and is removed if the block fails."""
    unfinished = aside(path)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a full disk may refuse the content only now
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_file(path: Path, content: str | bytes) -> None:
    """Write a whole file, text as UTF-8; ``path`` is unchanged if it raises OSError."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing_output(path: Path) -> Iterator[BinaryIO]:
    """A binary file for writing that the user named (``--output``); see :func:`writing`.

    A symbolic link is followed. What is not a plain file (``/dev/stdout``) is written directly.
    """
    path = Path(os.path.realpath(path))
    try:
        with path.open("wb") if path.exists() and not path.is_file() else writing(path) as file:
            yield file
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", file=str(path)) from None


@contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """A temporary folder; it is renamed to ``path``, a new one, when the block ends, or removed if the block fails."""
    unfinished = aside(path)
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
