"""``emulation.json``: how an emulated run's seconds were measured, what its interfaces carried, how busy it was."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgefl.files import read_json, write_file
from edgefl.options import Options
from edgefl.validation import validated


class WireBytes(Options):
    """Bytes to (``down``) and from clients by their interfaces' counters, without headers, with those sent again."""

    down: int
    up: int


class Load(Options):
    """How busy the computer was during the run.

    ``cpu`` is the share of its processors' time that was used, ``late_seconds`` how long after its time an event of the
    world was executed. For ``paused_seconds`` the clock was stopped, for example during training;
    ``paused_while_sending`` are those of them in which data was in transfer.
    """

    cpu: float
    late_seconds_median: float
    late_seconds_worst: float
    paused_seconds: float
    paused_while_sending: float


class Emulation(Options):
    """One emulated run of a method with a seed."""

    # seconds of the computer for one second of the run; all other seconds are those of the run
    dilation: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    # paced: local training lasts as long as the device model says; real: as long as it took
    compute: Literal["paced", "real"]
    queue: Literal["fair", "fifo"]
    wire_bytes: WireBytes
    load: Load
    trust: tuple[str, ...] = ()  # sentences about how far its seconds can be trusted
    machine: dict[str, str | int | float | bool | None] = Field(default_factory=dict)

    @property
    def words(self) -> str:
        return f"time dilation {self.dilation:g}, {self.compute} computation, {self.queue} queues"


def read_emulation(path: Path) -> Emulation | None:
    """Return the content of the file; ``None`` if it does not exist, so the run was simulated."""
    return validated(Emulation, read_json(path), file=str(path)) if path.exists() else None


def write_emulation(emulation: Emulation, path: Path) -> None:
    """Write the file; the same content gives the same bytes."""
    write_file(path, json.dumps(emulation.model_dump(mode="json"), indent=2, allow_nan=False) + "\n")
