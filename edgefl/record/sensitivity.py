"""``sensitivity.parquet``: the rounds of a run under other conditions, and the run that it belongs to."""

import hashlib
import json
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from edgefl.errors import UserError
from edgefl.files import parse_json
from edgefl.record import RunPaths
from edgefl.record.tables import AS_WRITTEN, SENSITIVITY, read_parquet, write_parquet

Devices = Literal["low", "nominal", "high"]

DEVICES: tuple[Devices, ...] = ("low", "nominal", "high")
"""Ordered from fast to slow."""


class Condition(NamedTuple):
    """A condition under which a finished run is re-timed."""

    # low: every profile's figures at the bound that gives the fewest seconds and joules; high: the bound that gives
    # the most
    devices: Devices
    bandwidth: float  # factor on the capacity of every link
    draw: int = 0  # which draw of the shares in queues (queue: fifo); 0 is the run's own


OWN = Condition("nominal", 1.0)

DRAWS = 19
"""Draws of the shares in queues, with the run's own. A further one is in their range with probability 18/20."""


class Retimed(NamedTuple):
    """The content of the file."""

    rows: pa.Table
    # by method, the kinds of decisions that depend on times; the run's decisions were kept
    held: dict[str, list[str]]
    refused: dict[str, str]  # by method, why it could not be timed again


def write_retimed(run: Path, found: Retimed) -> Path:
    """Write the file into the directory of a run, and return its path."""
    file = RunPaths(run).sensitivity
    facts = {"summary": _digest(run), "held": found.held, "refused": found.refused}
    try:
        write_parquet(found.rows.replace_schema_metadata({"edgefl": json.dumps(facts)}), file, **AS_WRITTEN)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", file=str(file)) from None
    return file


def read_retimed(run: Path) -> Retimed:
    """Read the file in the directory of a run."""
    file = RunPaths(run).sensitivity
    rows = read_parquet(file, SENSITIVITY)
    facts = parse_json(rows.schema.metadata[b"edgefl"], file=str(file))
    if facts["summary"] != _digest(run):
        raise UserError("was made from another run", file=str(file))
    return Retimed(rows, facts["held"], facts["refused"])


def _digest(run: Path) -> str:
    return hashlib.blake2b(RunPaths(run).summary.read_bytes(), digest_size=8).hexdigest()
