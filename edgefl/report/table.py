"""A table in a terminal, wide or narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefl.printable import printable_line
from edgefl.report.grid import Grid

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2  # blanks between two columns: one of padding and the box's own blank divider


def layout(grid: Grid, width: int) -> Table:
    """A table of at most ``width`` columns, unless a single figure is wider, with its notes below it.

    An interval is printed next to its mean if the terminal is wide enough, else below it. If the table is still too
    wide, its columns are split into several tables, one below the other, each with the names in front.
    """
    from rich.table import Table
    from rich.text import Text

    everything = range(len(grid.heads))
    stacked = _width(grid, everything, stacked=False) > width
    outer = Table.grid()
    for columns in _groups(grid, width) if stacked else [everything]:
        outer.add_row(_table(grid, columns, stacked=stacked))
        outer.add_row("")
    if grid.notes:
        outer.add_row(Text("\n".join(map(printable_line, grid.notes)), style="dim"))
    return outer


def _table(grid: Grid, columns: Sequence[int], *, stacked: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        head = grid.heads[column]
        words = Text("\n".join(printable_line(part) for part in (head.group, head.detail) if part))
        table.add_column(
            words, justify="left" if head.text else "right", no_wrap=not _wraps(grid, column), vertical="top"
        )
    for row in grid.rows:
        texts = []
        for cell in (row[column] for column in columns):
            text = Text(printable_line(cell.figure), style="bold" if cell.best else "")
            if cell.detail:
                text.append(("\n" if stacked else " ") + printable_line(cell.detail), style="dim")
            texts.append(text)
        table.add_row(*texts)
    return table


def _wraps(grid: Grid, column: int) -> bool:
    """Whether a column contains words that do not name the row; they may have several lines."""
    return grid.heads[column].text and column >= grid.names


def _width(grid: Grid, columns: Sequence[int], *, stacked: bool) -> int:
    """The width of a table with these columns."""
    widths = []
    for column in columns:
        cells = [row[column] for row in grid.rows]
        texts = [part for cell in cells for part in (cell[:2] if stacked else (cell.line,))]
        if _wraps(grid, column):
            texts = [word for text in texts for word in text.split()]
        widths.append(max(len(printable_line(text)) for text in (*grid.heads[column][:2], *texts)))
    return sum(widths) + _GAP * (len(widths) - 1)


def _groups(grid: Grid, width: int) -> list[list[int]]:
    """Split the columns into few groups that fit, each with the names first; sections are separated first."""
    names, figures = list(range(grid.names)), range(grid.names, len(grid.heads))
    if _width(grid, [*names, *figures], stacked=True) <= width:
        return [[*names, *figures]]
    groups = []
    for section in dict.fromkeys(grid.heads[column].section for column in figures):
        members = [column for column in figures if grid.heads[column].section == section]
        groups += _evenly(grid, names, members, width)
    return groups


def _evenly(grid: Grid, names: list[int], members: list[int], width: int) -> list[list[int]]:
    for count in range(1, len(members) + 1):
        size = -(-len(members) // count)
        groups = [names + members[start : start + size] for start in range(0, len(members), size)]
        if all(_width(grid, group, stacked=True) <= width for group in groups):
            return groups
    return [[*names, column] for column in members]
