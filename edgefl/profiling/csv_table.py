"""Read the header and the rows of a CSV file, as programs and spreadsheets write it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from edgefl.errors import UserError
from edgefl.files import read_text

SEPARATORS = ",;\t"
"""Spreadsheets in many languages write semicolons, and commas in numbers."""


class CsvTable(NamedTuple):
    """A table of texts.

    Attributes:
        header: the names of the columns in lower case, with ``_`` for spaces.
        rows: the line number of each row that is not empty, and its cells.
        decimal_comma: numbers may have one, because no comma separates the columns.
    """

    header: tuple[str, ...]
    rows: list[tuple[int, list[str]]]
    decimal_comma: bool

    def number(self, text: str) -> float:
        """``nan`` if the text is no number."""
        try:
            return float(text.replace(",", ".") if self.decimal_comma else text)
        except ValueError:
            return float("nan")


def read_csv(file: Path) -> CsvTable:
    """Read a CSV file with commas, semicolons or tabs; empty lines and those that begin with ``#`` are skipped.

    Raises:
        UserError: the file cannot be read, or a row has more or fewer cells than the header; with the line.
    """
    text = read_text(file)
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, delimiter=separator)
    filled = (cells for cells in reader if "".join(cells).strip() and not cells[0].startswith("#"))
    header = tuple(column.strip().lower().replace(" ", "_") for column in next(filled, []))
    rows = []
    for cells in filled:
        if len(cells) != len(header):
            message = f"line {reader.line_num}: expected {len(header)} values, found {len(cells)}"
            raise UserError(message, file=str(file))
        rows.append((reader.line_num, [cell.strip() for cell in cells]))
    return CsvTable(header, rows, separator != ",")
