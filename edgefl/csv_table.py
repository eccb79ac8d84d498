"""Tables of text as programs and spreadsheets write them, with or without a header."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import NamedTuple

from edgefl.errors import UserError
from edgefl.files import read_text


class CsvTable(NamedTuple):
    """A table of texts: its rows that are not empty, with their line numbers.

    The ``header`` is ``1``, ``2``, … in a table that is not ``named``: whose first line has only numbers. A number may
    have a ``decimal_comma`` if no comma separates the columns.
    """

    header: tuple[str, ...]
    named: bool
    rows: list[tuple[int, list[str]]]
    decimal_comma: bool

    def number(self, text: str) -> float:
        """``nan`` if the text is no finite number."""
        try:
            number = float(text.replace(",", ".") if self.decimal_comma else text)
        except ValueError:
            return math.nan
        return number if math.isfinite(number) and "_" not in text else math.nan

    def of_equal_rows(self, file: Path) -> CsvTable:
        """The table, with names in lower case and ``_`` for spaces; a row has neither more nor fewer cells."""
        for line, cells in self.rows:
            if len(cells) != len(self.header):
                message = f"line {line}: expected {len(self.header)} values, found {len(cells)}"
                raise UserError(message, file=str(file))
        return self._replace(header=tuple(column.lower().replace(" ", "_") for column in self.header))


def read_csv(file: str | Path, *, what: str = "a CSV file") -> CsvTable:
    """Read :func:`csv_table` from a file; raises UserError, also if the file cannot be read."""
    try:
        return csv_table(read_text(file, what=what))
    except UserError as error:
        raise error.located(file=str(file)) from None


def csv_table(text: str, *, numbered: bool = False) -> CsvTable:
    """A table whose columns are separated by commas, semicolons, tabs or spaces, as its first line shows.

    Empty lines and those that begin with ``#`` are skipped. If its columns are ``numbered``, a header is skipped, too.

    >>> csv_table("0,0;4,5" + chr(10) + "1,0;3,5").rows[1], csv_table("  0.0  4.5").header
    ((2, ['1,0', '3,5']), ('1', '2'))
    """
    lines = text.splitlines(keepends=True)
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    separator = _separator(first)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, delimiter=separator or ",")
    rows = []
    try:
        cells = ((reader.line_num, row) for row in reader) if separator else enumerate(map(str.split, lines), start=1)
        for line, row in cells:
            if any(map(str.strip, row)) and not row[0].startswith("#"):
                rows.append((line, [cell.strip() for cell in row]))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num + 1}: expected CSV: {error}") from None
    table = CsvTable((), False, rows, separator != ",")
    header = rows[0][1] if rows else []
    numbers = [math.isfinite(table.number(cell)) for cell in header if cell]
    if numbered or all(numbers):
        rows = rows if any(numbers) else rows[1:]
        return table._replace(header=tuple(str(number + 1) for number in range(len(header))), rows=rows)
    return table._replace(header=tuple(header), named=True, rows=rows[1:])


def _separator(line: str) -> str | None:
    """None for spaces, also between numbers with a decimal comma; a comma for a single column."""
    for separator in ";\t":
        if separator in line:
            return separator
    words = line.split()
    numbers = all(word.replace(",", "", 1).replace(".", "", 1).isdigit() and word[-1] != "," for word in words)
    return None if len(words) > 1 and ("," not in line or numbers) else ","
