"""What a figure can be at all: tables of a received run directory are refused where one cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_AMOUNTS = frozenset(
    {
        *("time", "seconds", "exposed_seconds", "hidden_seconds", "flops", "joules", "staleness"),
        *("bytes", "bytes_down", "bytes_up", "blocks_actual", "blocks_uniform"),
        *("participants", "aggregated", "refused", "samples", "tested", "bandwidth"),
    }
)
"""Columns of finite numbers that are never below 0."""


def check_ranges(table: pa.Table, file: Path) -> None:
    """Whether every figure of a table is one that can be.

    Accuracies lie in [0, 1]; seconds, bytes, FLOPs, joules and counts are finite and not negative.

    Args:
        table: any table of a run directory; columns without a range are passed over, and so are nulls.
        file: where it comes from, for messages.

    Raises:
        UserError: a figure is out of range; names its column and row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in table.column_names:
        highest = 1.0 if name.startswith("accuracy") else None
        if highest is None and name not in _AMOUNTS:
            continue
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            raise UserError(f"expected a column of numbers, found {kind}", file=str(file), field=name)
        column = table[name].cast(pa.float64())
        possible = pc.and_(pc.greater_equal(column, 0.0), pc.is_finite(column))
        if highest is not None:
            possible = pc.and_(possible, pc.less_equal(column, highest))
        place = pc.index(possible, False).as_py()
        if place >= 0:
            expected = "an accuracy in [0, 1]" if highest is not None else "a finite number of 0 or more"
            found = column[place].as_py()
            raise UserError(f"expected {expected} in row {place + 1}, found {found:g}", file=str(file), field=name)
