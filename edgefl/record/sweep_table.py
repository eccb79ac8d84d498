"""``sweep.parquet``: one row for each job, method and seed of a sweep.

Its columns are the job's folder, the value of each path that the sweep varied, the method, and figures of its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from edgefl.errors import UserError
from edgefl.record.tables import check_size

_JOB, _METHOD = "job", "method"


def sweep_row(job: str, setting: Mapping[str, Any], method: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row, with its columns in order."""
    return {_JOB: job, **setting, _METHOD: method, **figures}


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table; a figure that a row lacks is null."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def read_settings(file: Path) -> dict[str, dict[str, Any]]:
    """Return the setting of each job, the values by path, in the order of the table.

    Raises:
        UserError: the file cannot be read, or is not the table of a sweep.
    """
    try:
        check_size(file)
        table = pq.read_table(file)
        varied = table.column_names[1 : table.column_names.index(_METHOD)]
        rows = table.select([_JOB, *varied]).to_pylist()
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise UserError(f"cannot be read: {str(error).splitlines()[0]}", file=str(file)) from None
    return {str(row.pop(_JOB)): {path: _whole(value) for path, value in row.items()} for row in rows}


def _whole(value: Any) -> Any:
    """Whole floats as integers: all numbers of a column have one type, so integers may have been read as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
