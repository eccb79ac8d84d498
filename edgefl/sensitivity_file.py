"""``sensitivity.parquet``: what its rows are told apart by, and which run it belongs to.

``edgefl.experiment.sensitivity`` writes the file into a run directory, ``edgefl.report.sensitivity`` reads it there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, NamedTuple

from edgefl.record import RunPaths

Devices = Literal["low", "nominal", "high"]

DEVICES: tuple[Devices, ...] = ("low", "nominal", "high")
"""From fast to slow."""


class Condition(NamedTuple):
    """One of the circumstances in which a finished run is timed again.

    Attributes:
        devices: ``low``: every profile's figures at the bound that gives the least seconds and joules; ``high``: the
            most.
        bandwidth: factor on the capacity of every link.
    """

    devices: Devices
    bandwidth: float


OWN = Condition("nominal", 1.0)
"""The run's own."""


def digest(run: Path) -> str:
    """Sixteen hexadecimal digits of a run's summary: whether a file beside it still belongs to it."""
    return hashlib.blake2b(RunPaths(run).summary.read_bytes(), digest_size=8).hexdigest()
