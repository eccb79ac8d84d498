"""What keeps a device from its best speed: other work, chance, heat; and what was measured in place of a prediction."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from edgefl.fleet.bounds import Bounds, from_number
from edgefl.fleet.figure import Estimate
from edgefl.options import Options
from edgefl.units import Seconds


class Thermal(Options):
    """Heat: the processor cannot hold its rate for ever.

    Every computation starts cool, since a client rests between its rounds and while it transfers.
    """

    after: Seconds = Field(description="Seconds of continuous computing that the full rate lasts.")
    sustained: float = Field(gt=0, le=1, description="Part of compute.fp32_achievable that remains from then on.")


class Load(Bounds):
    """The part of the processor that other programs take: drawn evenly between two bounds, anew for every round."""

    low: float = Field(ge=0, lt=1, description="The least part of the processor that is taken.")
    high: float = Field(ge=0, lt=1, description="The greatest part of the processor that is taken.")


AnyLoad = Annotated[Load, BeforeValidator(from_number, json_schema_input_type=float | Load)]
"""A load as a profile states it: ``0.2``, or ``{low: 0.1, high: 0.4}``."""


class MeasuredStep(Options):
    """The measured time of one training step, which wins over the roofline's prediction of the same step."""

    signature: str = Field(
        pattern=r"^[0-9a-f]{16}$", description="Which step: its signature, as `edgefl cost --json` prints it."
    )
    step: str = Field(description="What it is, for readers: model, method, batch.")
    seconds: Seconds | Estimate[Seconds] = Field(description="What the step takes, all overheads included.")
