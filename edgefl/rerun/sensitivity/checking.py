"""Check ``sensitivity.parquet`` against the run in the same directory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq

from edgefl.errors import UserError
from edgefl.record import RunPaths
from edgefl.record.rounds import ROUNDS
from edgefl.record.sensitivity import OWN, Condition, read_retimed
from edgefl.record.summary import Summary
from edgefl.record.tables import SENSITIVITY, check_schema, read_parquet

_OLDER = SENSITIVITY.remove(SENSITIVITY.get_field_index("draw"))
"""The columns of a file without draws of shares in queues, as edgefl wrote it before it had them."""


def check_sensitivity(run: Path, summary: Summary) -> Iterator[str]:
    """Yield the faults of the file as sentences; nothing if the file does not exist.

    Under the run's own conditions, its rounds must equal the run's rounds bit for bit.
    """
    file = RunPaths(run).sensitivity
    if not file.is_file():
        return
    try:
        found = read_retimed(run)
        check_schema(file, SENSITIVITY if "draw" in pq.read_schema(file).names else _OLDER)
    except UserError as error:
        yield f"sensitivity.parquet {error.message}"
        return
    names = ("round", "seconds", "bytes", "joules")
    own: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for row in found.rows.to_pylist():
        if Condition(row["devices"], row["bandwidth"], row["draw"]) == OWN:
            own.setdefault((row["label"], row["seed"]), []).append(tuple(row[name] for name in names))
    for label, entries in summary.methods.items():
        for entry in entries if label not in found.refused else ():
            table = read_parquet(RunPaths(run).of(label, entry.seed).rounds, ROUNDS).to_pydict()
            bytes = [down + up for down, up in zip(table["bytes_down"], table["bytes_up"], strict=True)]
            columns = (table["round"], table["seconds"], accumulate(bytes), accumulate(table["joules"]))
            if own.get((label, entry.seed), []) != list(zip(*columns, strict=True)):
                yield (
                    f"{label}, seed {entry.seed}: under the run's own conditions the {', '.join(names)} "
                    "of sensitivity.parquet differ from the run's"
                )
