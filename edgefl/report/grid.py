"""A table as plain cells, which every format is written from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Cell(NamedTuple):
    """A figure, and what qualifies it (its interval, a median); either line may stand alone.

    Attributes:
        best: it is the column's best, or tied with it.
    """

    figure: str
    beside: str = ""
    best: bool = False

    @property
    def line(self) -> str:
        """Both on one line."""
        return f"{self.figure} {self.beside}".strip()


class Head(NamedTuple):
    """A column's heading in two parts; ``text``: it holds words, aligned to the left."""

    group: str
    detail: str = ""
    text: bool = False

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
        rows: as many cells each.
        notes: what a reader must know to read it rightly, one sentence each.
    """

    heads: list[Head]
    rows: list[list[Cell]]
    notes: list[str]
