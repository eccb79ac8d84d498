"""Check ``sensitivity.parquet`` against the run in the same directory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from edgefl.errors import UserError
from edgefl.json_file import parse_json
from edgefl.record import RunPaths
from edgefl.record.sensitivity import OWN, digest
from edgefl.record.summary import Summary
from edgefl.record.tables import SENSITIVITY, read_table


def check_sensitivity(run: Path, summary: Summary) -> Iterator[str]:
    """Yield the faults of the file as sentences; nothing if the file does not exist.

    Under the run's own conditions, its rounds must equal the run's rounds bit for bit.
    """
    file = RunPaths(run).sensitivity
    if not file.is_file():
        return
    try:
        found = read_table(file, SENSITIVITY)
        facts = parse_json(pq.read_schema(file).metadata[b"edgefl"])
        if facts["summary"] != digest(run):
            yield f"{file.name} was made from another run"
            return
        left_out = set(facts["refused"])
    except (UserError, OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        yield f"a table cannot be read: {error}"
        return
    names = ("round", "seconds", "bytes", "joules")
    own: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for label, seed, devices, bandwidth, *row in zip(*(found[name] for name in SENSITIVITY.names), strict=True):
        if (devices, bandwidth) == OWN:
            own.setdefault((label, seed), []).append(tuple(row))
    for label, entries in summary.methods.items():
        for entry in entries if label not in left_out else ():
            table = pq.read_table(RunPaths(run).of(label, entry.seed).rounds).to_pydict()
            bytes = [down + up for down, up in zip(table["bytes_down"], table["bytes_up"], strict=True)]
            columns = (table["round"], table["seconds"], accumulate(bytes), accumulate(table["joules"]))
            if own.get((label, entry.seed), []) != list(zip(*columns, strict=True)):
                yield (
                    f"{label}, seed {entry.seed}: under the run's own conditions the {', '.join(names)} "
                    f"of {file.name} differ from the run's"
                )
