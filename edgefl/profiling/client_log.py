"""Read the measured rounds of one real client from a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.plain_file import read_plain_text

COLUMNS = ("round", "download_seconds", "compute_seconds", "upload_seconds", "bytes_down", "bytes_up")
LEAST_ROUNDS = 3
"""Fewer rounds say nothing about the variation from round to round."""

RANGES = {"round": (0, 1e9), "seconds": (1e-6, 1e8), "bytes": (1, 1e15)}
"""The least and the greatest value of each kind of column; others are mistakes in the unit."""

MAXIMUM_BYTES = 2**24

Column = NDArray[np.float64]


@dataclass(frozen=True)
class ClientLog:
    """The measured rounds of a client, shape ``[rounds]`` each.

    Attributes:
        compute_seconds: of the local training.
        download_seconds, upload_seconds: of the transfers.
        bytes_down, bytes_up: what was transferred.
    """

    download_seconds: Column
    compute_seconds: Column
    upload_seconds: Column
    bytes_down: Column
    bytes_up: Column

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.compute_seconds)


def read_client_log(file: Path) -> ClientLog:
    """Read a CSV file with a header and the columns in :data:`COLUMNS`; other columns are ignored.

    Raises:
        UserError: the file cannot be read, a column is missing, a value is not a possible number, a round occurs twice,
            or there are fewer than three rounds; the message gives the line.
    """
    text = read_plain_text(file, MAXIMUM_BYTES, what="a log")
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        for column in COLUMNS:
            if header.count(column) != 1:
                found = ", ".join(header) or "nothing"
                _refuse(f"expected one column '{column}', found: {found}", file)
        rows: dict[float, list[float]] = {}
        for cells in reader:
            if any(cell.strip() for cell in cells):
                row = _row(header, cells, f"{file}: line {reader.line_num}")
                if row[0] in rows:
                    _refuse(f"line {reader.line_num}: expected each round once, found {row[0]:g} again", file)
                rows[row[0]] = row
    except csv.Error as error:
        _refuse(f"line {reader.line_num}: expected CSV: {error}", file)
    if len(rows) < LEAST_ROUNDS:
        _refuse(f"expected at least {LEAST_ROUNDS} rounds, found {len(rows)}", file)
    table = dict(zip(COLUMNS, np.array(list(rows.values()), np.float64).T, strict=True))
    del table["round"]
    return ClientLog(**table)


def _row(header: Sequence[str], cells: Sequence[str], place: str) -> list[float]:
    """The values of a line in the order of :data:`COLUMNS`."""
    if len(cells) != len(header):
        raise UserError(f"expected {len(header)} values, found {len(cells)}", file=place)
    named = dict(zip(header, cells, strict=True))
    row = []
    for column in COLUMNS:
        text = named[column].strip()
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        least, greatest = next(range for kind, range in RANGES.items() if kind in column)
        if not least <= number <= greatest:
            message = f"expected a number from {least:g} to {greatest:g}, found '{text}'"
            raise UserError(message, file=place, field=column)
        row.append(number)
    return row


def _refuse(message: str, file: Path) -> NoReturn:
    raise UserError(message, file=str(file)) from None
