r"""How commands print and end.

Control characters in texts are shown as escapes (``\x1b``). Tables are as wide as the terminal; in a file or pipe they
have ``COLUMNS`` columns, or 100.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

import typer

from edgefl.errors import EdgeflError
from edgefl.wording import escape

if TYPE_CHECKING:
    from edgefl.report.table import Table

WIDTH = 100
"""Columns of a table in a file or a pipe."""


class Stopped(EdgeflError):  # noqa: N818  (nothing went wrong)
    """Ctrl-C or SIGTERM ended the command; the message says how to continue."""


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text, which may come from received files, with control characters shown as escapes."""
    try:
        typer.echo(escape(str(text), keep="\n\t"), err=err, nl=nl)
    except BrokenPipeError:
        _reader_gone()


def flush() -> None:
    """Write what standard output still holds."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_gone()


def _reader_gone() -> None:
    """Write to nothing: the reader of standard output (``| head``) has closed the pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_json(data: Any) -> None:
    """Print plain data as JSON."""
    say(json.dumps(data, indent=2))


def quiet(as_json: bool) -> AbstractContextManager[object]:
    """Redirect printing by models and parts of methods to standard error if standard output is JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def width() -> int:
    """Columns of what is printed: ``COLUMNS``, those of the terminal, or 100."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH


def show(table: Table) -> None:
    """Print a table as wide as the terminal."""
    say(table.text(width()))


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    words: Sequence[int] = (0,),
) -> None:
    """Print a table with a title above and notes below; columns of ``words`` are aligned to the left."""
    from edgefl.report.table import Column, Table

    cells = [list(row) for row in rows]
    columns = [Column(head, [row[number] for row in cells], text=number in words) for number, head in enumerate(heads)]
    show(Table(columns, notes, [title] if title else []))
