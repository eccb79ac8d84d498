"""Files that a command writes to a path given by the user (``--output``, ``--html``, ``--png``).

An output is a new file, or replaces a plain file. It is never a file of a run directory or a sweep, and never has the
extension of a scenario, a table or a model, which commands read: a mistyped option must not destroy a result or an
input.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from edgefl import durable_file
from edgefl.errors import UserError
from edgefl.record import names
from edgefl.record.paths import kind_of
from edgefl.user_path import new_user_path

INPUT_ENDINGS = (".yaml", ".yml", ".parquet", ".safetensors", ".sqlite")
"""Extensions of files that commands read and that reports never have."""
STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/")
"""The process's own open files; ``-o >(command)`` in a shell names one of them."""


def output_path(name: str | PathLike[str]) -> Path:
    """Return the path of an output after checking it.

    Raises:
        UserError: an output cannot be written there; see the module.
    """
    path = new_user_path(name)
    if str(path).startswith(STREAMS):
        return path
    found = kind_of(path)
    if found not in (None, "a file"):
        raise UserError(f"expected a new or a plain file for the output, found {found}", file=str(path))
    if path.suffix.lower() in INPUT_ENDINGS:
        raise UserError(
            f"expected another ending: files that end in {path.suffix} are inputs, and no output replaces one",
            file=str(path),
        )
    if not path.parent.is_dir():
        raise UserError("cannot be written: its folder does not exist", file=str(path))
    owner = _owner(path)
    if owner is not None:
        raise UserError(f"expected another name: edgefl keeps this file itself in {owner}", file=str(path))
    return path


def new_output_path(name: str | PathLike[str]) -> Path:
    """Return the path of a file that a command creates and later commands read, such as a device profile.

    Raises:
        UserError: the path exists, or its folder does not.
    """
    path = new_user_path(name)
    if kind_of(path) is not None:
        raise UserError("the file exists already; choose another name", file=str(path))
    if not path.parent.is_dir():
        raise UserError("its folder does not exist", file=str(path))
    return path


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file for an output; it replaces ``path`` when the block ends.

    Raises:
        UserError: an output cannot be written there; ``path`` is unchanged.
    """
    with durable_file.output_file(output_path(path)) as file:
        yield file


def write_output(path: Path, content: str | bytes) -> None:
    """Write an output as a whole. See :func:`output_file`.

    Raises:
        UserError: an output cannot be written there; ``path`` is unchanged.
    """
    with output_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _owner(path: Path) -> Path | None:
    """The run directory or sweep to which a file of this path belongs, if there is one."""
    real = Path(os.path.realpath(path))
    for folder in real.parents:
        below = {part.casefold() for part in real.relative_to(folder).parts}
        if below & names.IN_A_RUN and _has(folder, names.SCENARIO) and _has(folder, *names.STATES):
            return folder
        if below & names.IN_A_SWEEP and _has(folder, names.SWEEP):
            return folder
    return None


def _has(folder: Path, *files: str) -> bool:
    return any(os.path.lexists(folder / name) for name in files)
