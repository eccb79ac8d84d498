"""Read and check the file that the measuring script writes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from edgefl import limits
from edgefl.errors import UserError, nearest
from edgefl.fleet.fitting import Step
from edgefl.json_file import read_json
from edgefl.options import Options
from edgefl.plain_file import read_plain
from edgefl.profiling.counting import operators_of
from edgefl.profiling.measure_device.main import FORMAT, LEAST_CHAINS, LEAST_STEPS, VERSION, cases
from edgefl.profiling.measure_device.steps import STEP
from edgefl.validation import validated


class Machine(Options):
    """The device as its system describes it."""

    processor: str = Field(description="The processor's name as the system gives it.")
    system: str = Field(description="Operating system.")
    python: str = Field(description="Version of Python.")
    torch: str = Field(description="Version of PyTorch.")
    threads: int = Field(ge=1, description="Threads that trained.")
    memory_bytes: int = Field(ge=0, description="Main memory; 0 where the system does not say.")
    peak_flops_per_second: float = Field(
        gt=0, allow_inf_nan=False, description="The fastest product of square matrices."
    )


class CaseTiming(Options):
    """The timing of one case."""

    seconds: float = Field(gt=0, allow_inf_nan=False, description="The minimum over all repetitions.")
    spread: float = Field(ge=1, allow_inf_nan=False, description="Their median divided by the minimum.")
    repetitions: int = Field(ge=1, description="The number of repetitions.")


class Measurement(Options):
    """A file of the measuring script."""

    format: Literal["edgefl device measurement"] = Field(description="What file this is.")
    version: int = Field(description="Version of the script's cases.")
    machine: Machine = Field(description="The device.")
    date: datetime.date = Field(description="When it was measured.")
    cases: dict[str, CaseTiming] = Field(description="Timings by the case's name.")
    left_out: dict[str, str] = Field(default_factory=dict, description="Why cases were left out.")

    def observations(self) -> tuple[list[Step], list[Step]]:
        """Return whole steps and chains of layers: the operators of each, and its seconds."""
        known = cases()
        runs: dict[str, Step] = {
            name: (operators_of(known[name]), timing.seconds) for name, timing in self.cases.items()
        }
        steps = [run for name, run in runs.items() if name.startswith(STEP)]
        return steps, [run for name, run in runs.items() if not name.startswith(STEP)]


def is_measurement(file: Path) -> bool:
    """Whether the file is one of the measuring script (JSON) rather than a table.

    Raises:
        UserError: the file cannot be read.
    """
    content = read_plain(file, limits.MEASUREMENT_BYTES, what="a table or a measurement")
    return file.suffix.lower() == ".json" or content.lstrip().startswith(b"{")


def read_measurement(file: Path) -> Measurement:
    """Read a measurement from a file of the measuring script.

    Raises:
        UserError: the file cannot be read, or is not from this version of the measuring script.
    """
    return measurement_of(read_json(file, maximum=limits.MEASUREMENT_BYTES), file=str(file))


def measurement_of(data: Any, *, file: str | None = None) -> Measurement:
    """Return a measurement from plain data.

    Raises:
        UserError: it is not from this version of the measuring script, or contains too few cases.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(
            "expected a file of the measuring script; `edgefl profile script` gives the script",
            file=file,
            field="format",
        )
    if data.get("version") != VERSION:
        raise UserError(
            f"expected a measurement of version {VERSION}, found {data.get('version')}; run the script "
            "that `edgefl profile script` gives on the device again",
            file=file,
            field="version",
        )
    found = validated(Measurement, data, file=file)
    known = cases()
    for name in found.cases:
        if name not in known:
            raise UserError(f"unknown case '{name}'; {nearest(name, known)}", file=file, field="cases")
    steps = sum(name.startswith(STEP) for name in found.cases)
    chains = len(found.cases) - steps
    if steps < LEAST_STEPS or chains < LEAST_CHAINS:
        raise UserError(
            f"expected at least {LEAST_STEPS} whole steps and {LEAST_CHAINS} chains of layers, found {steps} and "
            f"{chains}; run the script for longer (--seconds), or with more memory free",
            file=file,
            field="cases",
        )
    return found
