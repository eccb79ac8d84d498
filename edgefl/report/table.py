"""The comparison as a table in a terminal, wide or narrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefl.printable import printable_line
from edgefl.report.columns import Column, columns
from edgefl.report.grid import Cell, Grid
from edgefl.report.rows import Row, comparison_rows, notes
from edgefl.report.run_result import RunResult

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_GAP = 2  # blanks between two columns: one of padding and the box's own blank divider


def comparison_table(*runs: RunResult, width: int | None = None) -> Table:
    """The methods of one or several runs, with every figure of the summaries.

    An interval is printed next to its mean if the terminal is wide enough, else below it. If the table is still too
    wide, its columns are split into several tables, one below the other, each with the method in front.

    Args:
        runs: finished runs.
        width: columns of the terminal; ``None`` for the actual width.
    """
    rows = comparison_rows(*runs)
    if width is None:
        from rich.console import Console

        width = Console().width
    return layout(rows, width)


def layout(rows: Sequence[Row], width: int) -> Table:
    """The rows as one table of at most ``width`` columns, unless a single figure is wider."""
    from rich.table import Table

    found = columns(rows)
    stacked = _total(found, rows, stacked=False) > width
    groups = _groups(found, rows, width) if stacked else [found]
    outer = Table.grid()
    for group in groups:
        outer.add_row(_table(group, rows, stacked=stacked))
        outer.add_row("")
    lines = notes(rows)
    if lines:
        outer.add_row(_notes(lines))
    return outer


def _table(group: Sequence[Column], rows: Sequence[Row], *, stacked: bool) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column in group:
        header = _header(column.group, column.detail)
        table.add_column(header, justify="left" if column.text else "right", no_wrap=True, vertical="top")
    for row in rows:
        table.add_row(*(_text(column.cell(row), stacked=stacked) for column in group))
    return table


def grid_table(grid: Grid) -> Table:
    """A small table that is not split, best figures bold, with its notes below it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for head in grid.heads:
        header = _header(head.group, head.detail)
        table.add_column(header, justify="left" if head.text else "right", no_wrap=True, vertical="top")
    for row in grid.rows:
        table.add_row(*(Text(printable_line(cell.line), style="bold" if cell.best else "") for cell in row))
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row("")
    outer.add_row(_notes(grid.notes))
    return outer


def _header(group: str, detail: str) -> Text:
    from rich.text import Text

    return Text("\n".join(printable_line(part) for part in (group, detail) if part))


def _notes(lines: Sequence[str]) -> Text:
    from rich.text import Text

    return Text("\n".join(map(printable_line, lines)), style="dim")


def _text(cell: Cell, *, stacked: bool) -> Text:
    from rich.text import Text

    text = Text(printable_line(cell.figure))
    if cell.detail:
        text.append(("\n" if stacked else " ") + printable_line(cell.detail), style="dim")
    return text


def _width(column: Column, rows: Sequence[Row], *, stacked: bool) -> int:
    cells = [column.cell(row) for row in rows]
    texts = [part for cell in cells for part in (cell[:2] if stacked else (cell.line,))]
    return max(len(printable_line(text)) for text in (column.group, column.detail, *texts))


def _total(group: Sequence[Column], rows: Sequence[Row], *, stacked: bool) -> int:
    return sum(_width(column, rows, stacked=stacked) + _GAP for column in group) - _GAP


def _groups(found: Sequence[Column], rows: Sequence[Row], width: int) -> list[list[Column]]:
    """Split the columns into few groups that fit, each with the names first; sections are separated first."""
    names = [column for column in found if column.section == "names"]
    figures = [column for column in found if column.section != "names"]
    if _total(found, rows, stacked=True) <= width:
        return [list(found)]
    groups = []
    for section in dict.fromkeys(column.section for column in figures):
        members = [column for column in figures if column.section == section]
        groups += _evenly(names, members, rows, width)
    return groups


def _evenly(names: list[Column], members: list[Column], rows: Sequence[Row], width: int) -> list[list[Column]]:
    for count in range(1, len(members) + 1):
        size = -(-len(members) // count)
        groups = [names + members[start : start + size] for start in range(0, len(members), size)]
        if all(_total(group, rows, stacked=True) <= width for group in groups):
            return groups
    return [[*names, column] for column in members]
