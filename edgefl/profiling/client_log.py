"""Read the measured rounds of one real client from a CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from edgefl import limits
from edgefl.errors import UserError
from edgefl.profiling.csv_table import read_csv

COLUMNS = ("round", "download_seconds", "compute_seconds", "upload_seconds", "bytes_down", "bytes_up")
LEAST_ROUNDS = 3
"""Fewer rounds say nothing about the variation from round to round."""

RANGES = {"round": (0, 1e9), "seconds": (1e-6, 1e8), "bytes": (1, 1e15)}
"""The least and the greatest value of each kind of column; others are mistakes in the unit."""


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

    One column ``bytes`` replaces ``bytes_down`` and ``bytes_up`` if as much was sent as received.

    Raises:
        UserError: the file cannot be read, a column is missing, a value is not a possible number, a round occurs twice,
            or there are fewer than three rounds; the message gives the line.
    """
    table = read_csv(file, limits.CLIENT_LOG_BYTES, what="a log")
    header = table.header
    both = header.count("bytes") == 1 and "bytes_down" not in header and "bytes_up" not in header
    columns = {column: "bytes" if both and column.startswith("bytes") else column for column in COLUMNS}
    for column in columns.values():
        if header.count(column) != 1:
            found = ", ".join(header) or "nothing"
            _refuse(f"expected one column '{column}', found: {found}", file)
    rows: dict[float, list[float]] = {}
    for line, cells in table.rows:
        named = dict(zip(header, cells, strict=True))
        row = []
        for column in columns.values():
            least, greatest = next(range for kind, range in RANGES.items() if kind in column)
            number = table.number(named[column])
            if not least <= number <= greatest:
                message = f"expected a number from {least:g} to {greatest:g}, found '{named[column]}'"
                raise UserError(message, file=f"{file}: line {line}", field=column)
            row.append(number)
        if row[0] % 1:
            _refuse(f"line {line}: expected a whole number of the round, found {row[0]:g}", file)
        if row[0] in rows:
            _refuse(f"line {line}: expected each round once, found {row[0]:g} again", file)
        rows[row[0]] = row
    if len(rows) < LEAST_ROUNDS:
        _refuse(f"expected at least {LEAST_ROUNDS} rounds, found {len(rows)}", file)
    values = dict(zip(COLUMNS, np.array(list(rows.values()), np.float64).T, strict=True))
    del values["round"]
    return ClientLog(**values)


def _refuse(message: str, file: Path) -> NoReturn:
    raise UserError(message, file=str(file)) from None
