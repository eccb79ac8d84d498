"""A table as plain cells and as data, from which all formats are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


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
