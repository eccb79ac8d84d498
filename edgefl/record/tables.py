"""Write and read the tables of run directories and sweeps: Parquet with typed columns, and units in their metadata."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from edgefl.errors import UserError, first_line
from edgefl.files import write_file, writing
from edgefl.record.events import EVENTS, Event, Listener
from edgefl.record.figures import QUANTITIES
from edgefl.record.kinds import EventKind, column
from edgefl.record.rounds import CLIENTS, ROUNDS, ClientRow, RoundRow

_WORD = pa.dictionary(pa.int8(), pa.string())

SENSITIVITY = pa.schema(
    [
        column("label", _WORD, "", "the method"),
        column("seed", pa.int64(), "", "the run's seed"),
        column("devices", _WORD, "", "bound of the profiles' figures: low gives the least seconds and joules"),
        column("bandwidth", pa.float64(), "", "factor on the capacity of every link"),
        column("round", pa.int32(), "", "the round, from 1; its model is that of rounds.parquet"),
        column("seconds", pa.float64(), "s", "virtual time at the round's end"),
        column("bytes", pa.int64(), "B", "delivered in both directions up to then"),
        column("joules", pa.float64(), "J", "drawn by the devices up to then"),
        column("draw", pa.int32(), "", "draw of the shares in queues; 0 is the run's own"),
    ]
)

_ROW_GROUP = 32_768

AS_WRITTEN: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""Options for writing every table of a run; the checksums reveal damaged pages."""


class _EventFile(Listener):
    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self.waiting: list[Event] = []

    def events(self, rows: list[Event]) -> None:
        """Append rows; they are written in groups of a fixed size, independent of the number of ``rows``."""
        self.waiting.extend(rows)
        while len(self.waiting) >= _ROW_GROUP:
            self.write(self.waiting[:_ROW_GROUP])
            del self.waiting[:_ROW_GROUP]

    def write(self, events: Sequence[Event]) -> None:
        kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in EVENTS.types]
        columns = [pa.array(values, kind) for values, kind in zip(zip(*events, strict=True), kinds, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(columns, EVENTS.names).cast(EVENTS))


@contextmanager
def event_file(path: Path) -> Iterator[Listener]:
    """A listener that writes a run's events to a Parquet file, which gets its name when it is complete."""
    with writing(path) as file:
        writer = pq.ParquetWriter(file, EVENTS, **AS_WRITTEN)
        try:
            events = _EventFile(writer)
            yield events
            if events.waiting:
                events.write(events.waiting)
            writer.close()
        finally:
            writer.is_open = False  # else it closes, and so writes, when it is garbage-collected


def rounds_table(rows: Sequence[RoundRow]) -> pa.Table:
    """One run's rounds; NaN becomes null."""
    own = [QUANTITIES[name].column for name in (rows[0].amounts if rows else ()) if name not in ROUNDS.names]
    return _of_rows(rows, pa.schema([*ROUNDS, *own]))


def write_rounds(rows: Sequence[RoundRow], path: Path) -> None:
    """Write one run's rounds."""
    write_parquet(rounds_table(rows), path, **AS_WRITTEN)


def write_clients(rows: Sequence[ClientRow], path: Path) -> None:
    """Write the final model's metric on each client."""
    write_parquet(_of_rows(rows, CLIENTS), path, compression="zstd")


def _of_rows(rows: Sequence[object], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type, from_pandas=True) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_parquet(table: pa.Table, path: Path, **options: Any) -> None:
    """Write a whole table, with options of ``pyarrow.parquet.write_table``; after an OSError ``path`` is unchanged."""
    content = pa.BufferOutputStream()  # a writer on a full disk would try again when it is garbage-collected
    pq.write_table(table, content, **options)
    write_file(path, content.getvalue().to_pybytes())


def read_parquet(file: Path, schema: pa.Schema) -> pa.Table:
    """Return a table of a run directory, with its metadata."""
    try:
        table = pq.read_table(file, page_checksum_verification=True)
    except FileNotFoundError:
        raise UserError("cannot be read: no such file", file=str(file)) from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"cannot be read: {first_line(error)}", file=str(file)) from None
    for name in schema.names:
        if name not in table.column_names:
            raise UserError(f"cannot be read: it has no column '{name}'", file=str(file))
    return table


def read_events(file: Path, kinds: Collection[EventKind] | None = None) -> Iterator[Event]:
    """Yield the rows of one run's log, in order; only those of these kinds if any are given."""
    table = read_parquet(file, EVENTS).select(EVENTS.names)
    if kinds is not None:
        table = table.filter(pc.is_in(table["kind"].cast(pa.string()), value_set=pa.array(kinds)))
    for batch in table.to_batches():
        yield from map(Event._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def read_settings(file: Path) -> dict[str, dict[str, Any]]:
    """The setting of each job of a ``sweep.parquet``: its columns up to the method, by path, in order."""
    try:
        table = pq.read_table(file)
        names = table.column_names[: table.column_names.index("method")]
        rows = table.select(names).to_pylist()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UserError(f"cannot be read: {first_line(error)}", file=str(file)) from None
    return {str(row.pop("job")): {path: _whole(value) for path, value in row.items()} for row in rows}


def _whole(value: Any) -> Any:
    """Whole floats as integers: all numbers of a column have one type, so integers may have been read as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
