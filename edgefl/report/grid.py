"""A table as plain cells and as data, from which all formats are written."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from edgefl.report.statistics import Estimate, TimeToTarget
from edgefl.wording import escape

if TYPE_CHECKING:
    from rich.table import Table as RichTable


class Cell(NamedTuple):
    """A figure and its detail (an interval or a median); either may be empty.

    Attributes:
        best: whether it is the column's best figure, or tied with it.
    """

    figure: str
    detail: str = ""
    best: bool = False

    @property
    def line(self) -> str:
        """Both on one line."""
        return f"{self.figure} {self.detail}".strip()


class Head(NamedTuple):
    """A column's heading in two parts.

    Attributes:
        text: whether the column contains words and is aligned to the left.
        section: a table that is too wide is split between sections first.
    """

    group: str
    detail: str = ""
    text: bool = False
    section: str = ""

    @property
    def line(self) -> str:
        """Both parts on one line, the unit after a comma."""
        if not self.detail:
            return self.group
        return f"{self.group} {self.detail}" if self.text or "," in self.detail else f"{self.group}, {self.detail}"


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        heads: one for each column.
        rows: rows with one cell for each column.
        notes: remarks that are needed to read the table correctly, one sentence each.
    """

    heads: list[Head]
    rows: list[list[Cell]]
    notes: list[str]

    @property
    def names(self) -> int:
        """How many of the first columns name the rows: those with words, or one if all columns contain words."""
        return next((number for number, head in enumerate(self.heads) if not head.text), 1)

    @property
    def lines(self) -> list[list[str]]:
        """The rows with each cell on one line."""
        return [[cell.line for cell in row] for row in self.rows]


@dataclass(frozen=True)
class Table:
    """A table for people and for programs.

    Attributes:
        grid: its cells as text.
        records: its rows for CSV, in base units and full precision; ``None`` where there is no figure.
        data: the same for JSON.
        sentences: those below the table, by run.
    """

    grid: Grid
    records: list[dict[str, object]]
    data: dict[str, Any]
    sentences: list[tuple[str, list[str]]] = field(default_factory=list)


def markdown(grid: Grid) -> str:
    """A table in GitHub's Markdown, best figures bold, with the notes below it."""
    lines = [
        _markdown_line([_markdown(head.line) for head in grid.heads]),
        _markdown_line(["---" if head.text else "---:" for head in grid.heads]),
        *(
            _markdown_line([f"**{_markdown(cell.line)}**" if cell.best else _markdown(cell.line) for cell in row])
            for row in grid.rows
        ),
    ]
    return "\n".join([*lines, "", markdown_lines(grid.notes)]).rstrip() + "\n"


def markdown_lines(lines: Sequence[str], title: str = "") -> str:
    """Sentences, each on its own line, below a bold title if there is one."""
    shown = [re.sub(r"^(\d+(?=[.)])|(?=[#+=-]))", r"\1\\", _markdown(line)) for line in lines]
    return "".join(f"{line}  \n" for line in [*([f"**{_markdown(title)}**"] if title else []), *shown])


def _markdown(words: str) -> str:
    """Plain text: every character that could start HTML, an entity, a link, emphasis or a cell is escaped."""
    return re.sub(r"[\\`*\[\]<>|&~]|\b_|_\b", r"\\\g<0>", escape(words))


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(grid: Grid) -> str:
    """A ``tabular`` for the booktabs package, best figures bold, with the notes as comments above it."""
    shape = "".join("l" if head.text else "r" for head in grid.heads)
    return "\n".join(
        [
            *(f"% {escape(line)}" for line in grid.notes),
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            _latex_line([_latex(head.line) for head in grid.heads]),
            r"\midrule",
            *(
                _latex_line([rf"\textbf{{{_latex(cell.line)}}}" if cell.best else _latex(cell.line) for cell in row])
                for row in grid.rows
            ),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
}


def _latex(words: str) -> str:
    return re.sub(r"[&%$#_{}\\~^±–]", lambda sign: _LATEX[sign[0]], escape(words))


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def written(records: Sequence[Mapping[str, object]]) -> str:
    """Records as comma-separated values, with one column for each name that occurs."""
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_field(record.get(name)) for name in names] for record in records)
    return text.getvalue()


def _field(value: object) -> object:
    """A field; a text is on one line, and spreadsheets do not read it as a formula."""
    if not isinstance(value, str):
        return value
    text = escape(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def estimate_record(name: str, value: Estimate | None) -> dict[str, object]:
    """A mean and the half width of its interval, with their column names in CSV."""
    return {name: value and value.mean, f"{name}_half_width": value and value.half_width}


def target_record(name: str, found: TimeToTarget) -> dict[str, object]:
    """When a target was reached, with its column names in CSV."""
    return estimate_record(name, found.mean) | {f"{name}_reached": found.reached, f"{name}_median": found.median}


JSON_SCHEMA = 1
"""Increased when a key is renamed or changes its meaning; new keys do not increase it."""


def json_text(data: Mapping[str, object]) -> str:
    """A table as JSON."""
    return json.dumps({"schema": JSON_SCHEMA, **data}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def estimate_data(value: Estimate | None) -> dict[str, object] | None:
    """A figure for JSON."""
    return value and {"mean": value.mean, "half_width": value.half_width}


def target_data(found: TimeToTarget, unit: str) -> dict[str, object]:
    """When a target was reached, for JSON."""
    return {"reached": found.reached, unit: estimate_data(found.mean), "median": found.median}


_GAP = 2  # blanks between two columns: one of padding and the box's own blank divider


def layout(grid: Grid, width: int) -> RichTable:
    """A table of at most ``width`` columns, unless a single figure is wider, with its notes below it.

    An interval is printed next to its mean if the terminal is wide enough, else below it. If the table is still too
    wide, its columns are split into several tables, one below the other, each with the names in front.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    everything = range(len(grid.heads))
    stacked = _width(grid, everything, stacked=False) > width
    outer = RichTable.grid()
    for columns in _groups(grid, width) if stacked else [everything]:
        outer.add_row(_table(grid, columns, stacked=stacked))
        outer.add_row("")
    if grid.notes:
        outer.add_row(Text("\n".join(map(escape, grid.notes)), style="dim"))
    return outer


def _table(grid: Grid, columns: Sequence[int], *, stacked: bool) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        head = grid.heads[column]
        words = Text("\n".join(escape(part) for part in (head.group, head.detail) if part))
        table.add_column(
            words, justify="left" if head.text else "right", no_wrap=not _wraps(grid, column), vertical="top"
        )
    for row in grid.rows:
        texts = []
        for cell in (row[column] for column in columns):
            text = Text(escape(cell.figure), style="bold" if cell.best else "")
            if cell.detail:
                text.append(("\n" if stacked else " ") + escape(cell.detail), style="dim")
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
        widths.append(max(len(escape(text)) for text in (*grid.heads[column][:2], *texts)))
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
