"""Check the types and figures in the tables of a received run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgefl import limits
from edgefl.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_AMOUNTS = frozenset(
    {
        *("time", "seconds", "exposed_seconds", "hidden_seconds", "flops", "joules", "staleness"),
        "ratio_to_optimum",
        *("bytes", "bytes_down", "bytes_up", "blocks_actual", "blocks_uniform"),
        *("participants", "aggregated", "refused", "samples", "tested", "bandwidth"),
    }
)
"""Columns of finite numbers that are never below 0."""

_COMPLETE = frozenset({"time", "seconds"})
"""Columns of numbers that have a value in every row, as columns of whole numbers and of text do."""


def check_table(table: pa.Table, schema: pa.Schema, file: Path) -> None:
    """Check the types and the figures of a table.

    Args:
        table: a table of a run directory.
        schema: its columns; a column that the table lacks is not checked.
        file: the source of the table, for messages.

    Raises:
        UserError: see :func:`check_types` and :func:`check_ranges`.
    """
    check_types(table, schema, file)
    check_ranges(table, file)


def check_types(table: pa.Table, schema: pa.Schema, file: Path) -> None:
    """Check that each column contains what its schema says: whole numbers, numbers or text.

    The number of bits may differ. A column of whole numbers, text or times has a value in every row.

    Raises:
        UserError: a column has another type, lacks values, or occurs twice; the message names it.
    """
    for name in schema.names:
        count = table.column_names.count(name)
        if count > 1:
            raise UserError("expected this column once, found it twice", file=str(file), field=name)
        if not count:
            continue
        expected, found = _words(schema.field(name).type), _words(table.schema.field(name).type)
        if found != expected and (expected, found) not in _ALSO:
            kind = table.schema.field(name).type
            raise UserError(f"expected a column of {expected}, found {kind}", file=str(file), field=name)
        empty = table[name].null_count if expected != "numbers" or name in _COMPLETE else 0
        if empty:
            raise UserError(f"expected a value in every row, found {empty} without one", file=str(file), field=name)


_ALSO = {("numbers", "whole numbers"), ("numbers", "nothing")}
"""Types that a column may have in place of the expected one."""


def _words(kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return "whole numbers"
    if pa.types.is_floating(kind):
        return "numbers"
    if pa.types.is_null(kind):
        return "nothing"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def check_ranges(table: pa.Table, file: Path) -> None:
    """Check that every figure of a table is in its possible range.

    Accuracies are in [0, 1]; seconds, bytes, FLOPs, joules and counts are finite and not negative; values of events are
    finite. None is so large that a sum over the table is not finite.

    Args:
        table: any table of a run directory; columns without a range and nulls are ignored.
        file: the table's file, for messages.

    Raises:
        UserError: a figure is out of range; the message gives its column and row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in table.column_names:
        share = name.startswith("accuracy")
        if not share and name not in _AMOUNTS and name != "value" and not name.startswith("metric"):
            continue
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            raise UserError(f"expected a column of numbers, found {kind}", file=str(file), field=name)
        highest = 1.0 if share else limits.COUNT if pa.types.is_integer(kind) else limits.FIGURE
        lowest = -highest if name == "value" else 0.0
        column = table[name].cast(pa.float64(), safe=False)
        possible = pc.and_(pc.greater_equal(column, lowest), pc.less_equal(column, highest))
        place = pc.index(possible, False).as_py()
        if place >= 0:
            expected = "an accuracy in [0, 1]" if share else f"a number from {lowest:g} to {highest:g}"
            found = column[place].as_py()
            raise UserError(f"expected {expected} in row {place + 1}, found {found:g}", file=str(file), field=name)
