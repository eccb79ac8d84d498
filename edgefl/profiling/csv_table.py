"""Read the header and the rows of a CSV file, as programs and spreadsheets write it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import UserError
from edgefl.plain_file import read_plain_text

SEPARATORS = ",;\t"
"""What separates the columns; spreadsheets in many languages write semicolons, and commas in numbers."""


@dataclass(frozen=True)
class CsvTable:
    """A table of texts.

    Attributes:
        header: the names of the columns in lower case, with ``_`` for spaces.
        rows: the line number of each row that is not empty, and its cells.
        decimal_comma: whether numbers may have one, because no comma separates the columns.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[int, list[str]], ...]
    decimal_comma: bool

    def number(self, text: str) -> float:
        """The number in a cell; ``nan`` if it is none."""
        try:
            return float(text.replace(",", ".") if self.decimal_comma else text)
        except ValueError:
            return float("nan")


def read_csv(file: Path, maximum: int, *, what: str) -> CsvTable:
    """Read a CSV file whose columns are separated by commas, semicolons or tabs.

    Empty lines, and those that begin with ``#``, are skipped.

    Args:
        file: the file.
        maximum: its largest size in bytes.
        what: what is expected, for messages ("a table").

    Raises:
        UserError: the file cannot be read, or a row has more or fewer cells than the header (the message gives the
            line).
    """
    text = read_plain_text(file, maximum, what=what)
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, delimiter=separator)
    rows = []
    try:
        filled = (cells for cells in reader if "".join(cells).strip() and not cells[0].startswith("#"))
        header = tuple(column.strip().lower().replace(" ", "_") for column in next(filled, []))
        for cells in filled:
            if len(cells) != len(header):
                raise UserError(
                    f"line {reader.line_num}: expected {len(header)} values, found {len(cells)}", file=str(file)
                )
            rows.append((reader.line_num, [cell.strip() for cell in cells]))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num}: expected CSV: {error}", file=str(file)) from None
    return CsvTable(header, tuple(rows), separator != ",")
