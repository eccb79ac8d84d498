"""What slows a device down: heat and other work; and measured times that replace a prediction."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from edgefl.fleet.bounds import Bounds, from_number
from edgefl.fleet.figure import Estimate
from edgefl.options import Options
from edgefl.units import Seconds


class Thermal(Options):
    """Heat: the processor cannot keep its full rate permanently.

    Every computation starts cool, because a client rests between its rounds and while it transfers.
    """

    after: Seconds = Field(description="Seconds of continuous computing at the full rate.")
    sustained: float = Field(gt=0, le=1, description="Part of compute.fp32_achievable that remains afterwards.")


class Load(Bounds):
    """The part of the processor that other programs use: drawn uniformly between two bounds for every round."""

    low: float = Field(ge=0, lt=1, description="Lowest part of the processor that other programs use.")
    high: float = Field(ge=0, lt=1, description="Highest part of the processor that other programs use.")


AnyLoad = Annotated[Load, BeforeValidator(from_number, json_schema_input_type=float | Load)]
"""A load as a profile states it: ``0.2``, or ``{low: 0.1, high: 0.4}``."""


class MeasuredStep(Options):
    """The measured time of one training step, which replaces the roofline's prediction for the same step."""

    signature: str = Field(
        pattern=r"^[0-9a-f]{16}$", description="The step's signature, as printed by `edgefl cost --json`."
    )
    step: str = Field(description="A description for readers: model, method, batch.")
    seconds: Seconds | Estimate[Seconds] = Field(description="Duration of the step, including all overheads.")
