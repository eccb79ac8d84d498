"""The rows of ``events.parquet``, one for everything that happened, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from edgefl.errors import UserError
from edgefl.report.ranges import check_ranges


class Event(NamedTuple):
    """One row; the columns are explained in each column's metadata."""

    time: float
    kind: str
    round: int
    client: int
    item: str
    flow: int
    source: str
    target: str
    bytes: int
    seconds: float
    flops: float
    joules: float
    value: float
    detail: str

    @property
    def facts(self) -> dict[str, Any]:
        """The further facts; empty where there are none or they cannot be read."""
        try:
            found = json.loads(self.detail) if self.detail else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def read_events(file: Path) -> Iterator[Event]:
    """The rows of one run's log.

    Raises:
        UserError: the file cannot be read, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file, columns=list(Event._fields), page_checksum_verification=True)
        missing = [name for name in Event._fields if name not in table.column_names]
    except FileNotFoundError:
        raise UserError("cannot be read: no such file", file=str(file)) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"cannot be read: {reason}", file=str(file)) from None
    if missing:
        raise UserError(f"expected the columns of an event log, found no {', '.join(missing)}", file=str(file))
    check_ranges(table, file)
    for batch in table.to_batches():
        yield from map(Event._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))
