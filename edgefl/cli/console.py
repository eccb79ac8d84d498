r"""Consoles for tables: as wide as the terminal; in a file or pipe ``COLUMNS`` columns, or 200.

Control characters in texts are shown as escapes (``\x1b``); the console's own colours are not texts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from edgefl import wording

if TYPE_CHECKING:
    from edgefl.report.grid import Cell

WIDTH_OF_A_FILE = 200


def width_of_a_file() -> int:
    """Columns of a table in a file or a pipe: ``COLUMNS``, parsed as the standard library does, or 200."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        return WIDTH_OF_A_FILE
    return columns if columns > 0 else WIDTH_OF_A_FILE


class _SafeConsole(Console):
    """Shows control characters in what it prints, wherever a text comes from."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable; those with a control code are the console's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(wording.escape(segment.text, keep="\n\t"), segment.style)


def standard_output() -> Console:
    """A rich console on standard output."""
    console = _SafeConsole(highlight=False)
    return console if console.is_terminal else _SafeConsole(highlight=False, width=width_of_a_file())


def into_file(file: TextIO) -> Console:
    """A rich console that writes into a text file, without terminal control codes."""
    return _SafeConsole(file=file, highlight=False, width=width_of_a_file(), force_terminal=False, color_system=None)


def standard_error() -> Console:
    """A rich console on standard error, for progress."""
    # The stream as it is now: a part of a method may replace ``sys.stderr``.
    console = _SafeConsole(file=sys.stderr, highlight=False)
    return console if console.is_terminal else _SafeConsole(file=sys.stderr, highlight=False, width=width_of_a_file())


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
        console.print(escape(title))
    cells = [[Cell(each) if isinstance(each, str) else each for each in row] for row in rows]
    grid = Grid([Head(head, text=number in words) for number, head in enumerate(heads)], cells, list(notes))
    console.print(layout(grid, console.width))
