"""``clients.parquet``: the final model's metric on each client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from edgefl.record.column import column
from edgefl.record.tables import write_parquet

CLIENTS = pa.schema(
    [
        column("client", pa.int32(), "", "the client's number"),
        column("samples", pa.int64(), "", "training samples of the client"),
        column("tested", pa.int64(), "", "test samples of the client"),
        column("metric", pa.float64(), "", "the task's metric of the final model on them; null where there are none"),
        column("metric_personalised", pa.float64(), "", "after personalisation; null without it"),
        column("accuracy", pa.float64(), "", "the metric, in [0, 1], if it is the accuracy"),
        column("accuracy_personalised", pa.float64(), "", "metric_personalised, if it is the accuracy"),
    ]
)
"""Columns of ``clients.parquet``, the fields of :class:`ClientRow`."""


class ClientRow(NamedTuple):
    """One client; a metric is NaN or ``None`` where there is none."""

    client: int
    samples: int
    tested: int
    metric: float
    metric_personalised: float | None
    accuracy: float | None
    accuracy_personalised: float | None


def write_clients(rows: Sequence[ClientRow], path: Path) -> None:
    """Write the table."""
    arrays = [pa.array([getattr(row, field.name) for row in rows], field.type, from_pandas=True) for field in CLIENTS]
    write_parquet(pa.Table.from_arrays(arrays, schema=CLIENTS), path, compression="zstd")
