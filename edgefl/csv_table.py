"""Tables of text as programs and spreadsheets write them, with or without a header."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

from edgefl.errors import UserError, locating, nearest
from edgefl.files import read_text

_PLAIN = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NUMBER = re.compile(r"[-+]?(\d[\d.,]*|[.,]\d+)([eE][-+]?\d+)?")
_GROUPED = {mark: re.compile(rf"[-+]?[1-9]\d{{0,2}}([{mark}]\d{{3}})+([{other}]\d*)?") for mark, other in (",.", ".,")}
"""Numbers with separators of thousands, by the separator."""


Text = Annotated[str, BeforeValidator(lambda it: str(it) if type(it) is int else it, json_schema_input_type=str | int)]
"""A cell or the name of a column; a whole number may be written without quotes."""
Names = Annotated[
    tuple[Text, ...],
    BeforeValidator(lambda it: [it] if isinstance(it, str | int) else it, json_schema_input_type=Text | list[Text]),
]


class CsvTable(NamedTuple):
    """A table of texts: its rows that are not empty, with their line numbers.

    The ``header`` is ``1``, ``2``, … in a table that is not ``named``: whose first line has only numbers. If
    ``commas`` separate the columns, numbers without quotes have a decimal point; else :meth:`numbers` finds out.
    """

    header: tuple[str, ...]
    named: bool
    rows: list[tuple[int, list[str]]]
    commas: bool

    def numbers(self, place: int) -> Callable[[str], Decimal]:
        """What reads the numbers of a column, exactly; NaN if the text is no finite number.

        Spreadsheets write ``1,234`` for 1234 and, in other countries, for 1.234. A column in which each comma (or
        point) is followed by three digits is read as the other columns of the table show, and refused if none does.

        >>> table = csv_table("t;kbps;W" + chr(10) + "0;1.234,5;1,234" + chr(10) + "1;950;1,25")
        >>> [float(table.numbers(place)(table.rows[0][1][place])) for place in (1, 2)]
        [1234.5, 1.234]
        >>> csv_table("t;kbps" + chr(10) + "0;1,234" + chr(10) + "1;950").numbers(1)
        Traceback (most recent call last):
        ...
        edgefl.errors.UserError: kbps: '1,234' may be 1234 or 1.234; write numbers without separators of thousands
        """
        plain = self.commas and not any("," in row[place] for _, row in self.rows if place < len(row))
        shown, doubtful = ({}, None) if plain else self._separators(place)
        if doubtful is not None and not shown:
            columns = range(len(self.header))
            shown = {mark: text for column in columns for mark, text in self._separators(column)[0].items()}
            if len(shown) != 1:
                may_be = f"{doubtful.replace(',', '').replace('.', '')} or {doubtful.replace(',', '.')}"
                message = f"'{doubtful}' may be {may_be}; write numbers without separators of thousands"
                raise UserError(message, field=self.header[place])
        if len(shown) > 1:
            message = f"expected one decimal separator, found {' and '.join(sorted(shown.values()))}"
            raise UserError(message, field=self.header[place])
        point = next(iter(shown), ".")
        thousands = "." if point == "," else ","

        def read(text: str) -> Decimal:
            if not plain and _GROUPED[thousands].fullmatch(text):
                text = text.replace(thousands, "")
            text = text.replace(point, ".") if thousands not in text else ""
            number = Decimal(text) if _PLAIN.fullmatch(text) else Decimal("nan")
            return number if math.isfinite(float(number)) else Decimal("nan")

        return read

    def _separators(self, place: int) -> tuple[dict[str, str], str | None]:
        """The decimal separators of a column, each with a number that shows it; a number that may have thousands."""
        texts = [row[place] for _, row in self.rows if place < len(row) and _NUMBER.fullmatch(row[place])]
        shown: dict[str, str] = {}
        grouped: dict[str, str] = {}
        for text in texts:
            marks = [mark for mark in text if mark in ",."]
            in_groups = bool(marks) and _GROUPED[marks[0]].fullmatch(text) is not None
            if len(marks) == 1:
                (grouped if in_groups else shown).setdefault(marks[0], text)
            elif in_groups:
                shown.setdefault("." if marks[0] == "," else ",", text)
        # No program writes fractions as 950 and 1.234, or 12 and 2.500; some write all of them with three digits.
        whole = [text for text in texts if text.isdigit()]
        mixed = any(len(text) > 2 for text in whole) or (whole and any(text[-1] == "0" for text in grouped.values()))
        return shown, grouped.get(",") or (grouped.get(".") if mixed else None)

    def place(self, name: str, example: str) -> int:
        """The place of a column by its name; ``example`` is an option that names columns, for messages."""
        if not self.header:
            raise UserError("expected a header with the names of columns, found none")
        if not self.named and name not in self.header:
            first = ", ".join(self.rows[0][1][:3])
            raise UserError(
                f"expected a header with a column '{name}', found only numbers in the first line ({first}); "
                f"name the columns by their numbers, such as {example}"
            )
        count = self.header.count(name)
        if count != 1:
            hint = f"found {count}" if count else nearest(name, filter(None, self.header))
            raise UserError(f"expected one column '{name}' in the header; {hint}; or name columns, as in {example}")
        return self.header.index(name)

    def of_equal_rows(self, file: Path) -> CsvTable:
        """The table, with names in lower case and ``_`` for spaces; a row has neither more nor fewer cells."""
        for line, cells in self.rows:
            if len(cells) != len(self.header):
                message = f"line {line}: expected {len(self.header)} values, found {len(cells)}"
                raise UserError(message, file=str(file))
        return self._replace(header=tuple(column.lower().replace(" ", "_") for column in self.header))


def read_csv(file: str | Path) -> CsvTable:
    """Read :func:`csv_table` from a file; raises UserError, also if the file cannot be read."""
    with locating(file=str(file)):
        return csv_table(read_text(file, what="a CSV file"))


def csv_table(text: str, *, numbered: bool = False) -> CsvTable:
    """A table whose columns are separated by commas, semicolons, tabs, | or spaces, as its first line shows.

    Empty lines, those that begin with ``#``, and Excel's ``sep=;`` are skipped. If its columns are ``numbered``, a
    header is skipped, too.

    >>> csv_table("0,0;4,5" + chr(10) + "1,0;3,5").rows[1], csv_table("  0.0  4.5").header
    ((2, ['1,0', '3,5']), ('1', '2'))
    """
    lines = list(io.StringIO(text, newline=""))
    stated = re.fullmatch(r'"?sep=(.)"?\s*', lines[0]) if lines else None
    first = next((line for line in lines[stated is not None :] if line.strip() and not line.startswith("#")), "")
    separator = stated[1] if stated else _separator(re.sub(r'"[^"]*"', "_", first))
    reader = csv.reader(lines, skipinitialspace=True, delimiter=separator or ",")
    rows, begins = [], 0
    try:
        cells = ((reader.line_num, row) for row in reader) if separator else enumerate(map(str.split, lines), start=1)
        for line, row in cells:
            comment = lines[begins].lstrip().startswith("#") or (stated is not None and begins == 0)
            begins = line
            if any(map(str.strip, row)) and not comment:
                rows.append((line, [cell.strip() for cell in row]))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num + 1}: expected CSV: {error}") from None
    table = CsvTable((), False, rows, separator == ",")
    header = rows[0][1] if rows else []
    form = _PLAIN if table.commas else _NUMBER
    numbers = [form.fullmatch(cell) is not None for cell in header if cell]
    named = not (numbered or all(numbers))
    rows = rows[1:] if named or not any(numbers) else rows
    if not named:
        header = [str(number + 1) for number in range(len(rows[0][1] if rows else header))]
    for line, row in rows:
        if any(row[len(header) :]):
            message = f"line {line}: expected at most {len(header)} values, found {len(row)}"
            raise UserError(f"{message}; write numbers without separators of thousands")
    return table._replace(header=tuple(header), named=named, rows=rows)


def _separator(line: str) -> str | None:
    """None for spaces, also between numbers with a decimal comma; a comma for a single column."""
    for separator in ";\t|":
        if separator in line:
            return separator
    words = line.split()
    numbers = all(word.replace(",", "", 1).replace(".", "", 1).isdigit() and word[-1] != "," for word in words)
    return None if len(words) > 1 and ("," not in line or numbers) else ","
