r"""How commands print and end.

Control characters in texts are shown as escapes (``\x1b``); a console's own colours are not texts. Tables are as wide
as the terminal; in a file or pipe they have ``COLUMNS`` columns, or 200.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape as without_markup
from rich.segment import Segment

from edgefl.errors import EdgeflError
from edgefl.wording import escape

if TYPE_CHECKING:
    from edgefl.report.grid import Cell


class Stopped(EdgeflError):  # noqa: N818  (nothing went wrong)
    """Ctrl-C or SIGTERM ended the command; the message says how to continue."""


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    r"""Print text, with control characters shown as escapes (``\x1b``).

    Args:
        text: what to print; names and messages in it may come from received files.
        err: print it to standard error.
        nl: end the line.
    """
    typer.echo(escape(str(text), keep="\n\t"), err=err, nl=nl)


def say_json(data: Any) -> None:
    """Print plain data as JSON."""
    say(json.dumps(data, indent=2))


def quiet(as_json: bool) -> AbstractContextManager[object]:
    """Redirect printing by models and parts of methods to standard error if standard output is JSON."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def width_of_a_file() -> int:
    """Columns of a table in a file or a pipe: ``COLUMNS``, parsed as the standard library does, or 200."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    return columns if columns > 0 else 200


class _SafeConsole(Console):
    """Shows control characters in what it prints, wherever a text comes from."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable; those with a control code are the console's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape(segment.text, keep="\n\t"), segment.style)


def standard_output() -> Console:
    """A rich console on standard output."""
    return _console(sys.stdout)


def standard_error() -> Console:
    """A rich console on standard error, for progress."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    console = _SafeConsole(file=stream, highlight=False)
    return console if console.is_terminal else _SafeConsole(file=stream, highlight=False, width=width_of_a_file())


def into_file(file: TextIO) -> Console:
    """A rich console that writes into a text file, without terminal control codes."""
    return _SafeConsole(file=file, highlight=False, width=width_of_a_file(), force_terminal=False, color_system=None)


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
    words: Sequence[int] = (0,),
) -> None:
    """Print a table on standard output.

    Args:
        heads: a heading for each column.
        rows: cells; the detail of a cell is printed next to its figure, or below it in a narrow terminal.
        title: a line above the table.
        notes: sentences below it.
        words: the columns that contain words and are aligned to the left.
    """
    from edgefl.report.grid import Cell, Grid, Head, layout

    console = standard_output()
    if title:
        console.print(without_markup(title))
    cells = [[Cell(each) if isinstance(each, str) else each for each in row] for row in rows]
    grid = Grid([Head(head, text=number in words) for number, head in enumerate(heads)], cells, list(notes))
    console.print(layout(grid, console.width))
