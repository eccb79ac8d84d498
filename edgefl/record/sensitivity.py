"""``sensitivity.parquet``: the keys of its rows, and the run that it belongs to.

``edgefl.rerun.sensitivity`` writes the file into a run directory, ``edgefl.report.sensitivity`` reads it there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

from edgefl.record import RunPaths

Devices = Literal["low", "nominal", "high"]

DEVICES: tuple[Devices, ...] = ("low", "nominal", "high")
"""Ordered from fast to slow."""


class Condition(NamedTuple):
    """A condition under which a finished run is re-timed.

    Attributes:
        devices: ``low``: every profile's figures at the bound that gives the fewest seconds and joules; ``high``: the
            bound that gives the most.
        bandwidth: factor on the capacity of every link.
    """

    devices: Devices
    bandwidth: float


OWN = Condition("nominal", 1.0)
"""The run's own condition."""


def digest(run: Path) -> str:
    """Sixteen hexadecimal digits of a run's summary, to check that a file in its folder still belongs to it."""
    return hashlib.blake2b(RunPaths(run).summary.read_bytes(), digest_size=8).hexdigest()
