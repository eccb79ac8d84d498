"""Paths as users give them, on the command line, in a scenario or from Python."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from edgefl import limits
from edgefl.errors import UserError, one_line
from edgefl.printable import printable_line


def user_path(name: str | PathLike[str], *, argument: str | None = None) -> Path:
    """The path with ``~`` expanded, as a shell does at the beginning of a word.

    Args:
        name: the path.
        argument: the argument of a function that gave it, for messages.

    Raises:
        UserError: it is not a path, no file can have this name, or there is no such home folder.
    """
    if not isinstance(name, str | PathLike) or not isinstance(os.fspath(name), str):
        raise UserError(f"expected a path, found {one_line(name)}", field=argument)
    path = Path(name)
    if "\0" in str(path):
        raise UserError(f"expected a path, found a null character in '{_short(path)}'", field=argument)
    if len(str(path)) > limits.PATH_CHARACTERS:
        raise UserError(
            f"expected a path of at most {limits.PATH_CHARACTERS} characters, found '{_short(path)}'", field=argument
        )
    try:
        return path.expanduser()
    except RuntimeError:
        raise UserError(f"'{_short(path)}': no user of this name has a home folder", field=argument) from None


def new_user_path(name: str | PathLike[str], *, argument: str | None = None) -> Path:
    """The same for a file or folder that is going to be made.

    Raises:
        UserError: as for :func:`user_path`, or the name contains control characters.
    """
    path = user_path(name, argument=argument)
    if printable_line(str(path)) != str(path):
        shown = printable_line(_short(path))
        raise UserError(f"expected a path in UTF-8 without control characters, found '{shown}'", field=argument)
    return path


def _short(path: Path) -> str:
    return str(path) if len(str(path)) <= 80 else f"{str(path)[:77]}..."
