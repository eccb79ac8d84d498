"""What a device profile says: how fast a kind of device computes, what it holds, what it draws, and who says so."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from edgefl.errors import nearest
from edgefl.fleet.battery import Battery
from edgefl.fleet.conditions import AnyLoad, Load, MeasuredStep, Thermal
from edgefl.fleet.figure import Bound, Estimate, opposite, value
from edgefl.operator_kinds import KINDS
from edgefl.options import Options
from edgefl.units import Bytes, BytesPerSecond, FlopsPerSecond, Joules, Seconds, Watts

Kind = Literal["sbc", "jetson", "phone", "laptop", "pc", "microcontroller"]
Direction = Literal["down", "up"]


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"unknown kind of operators; {nearest(kind, KINDS)}")
    return kind


OperatorKind = Annotated[str, AfterValidator(_known)]
"""One of :data:`edgefl.operator_kinds.KINDS`."""


class OperatorRates(Options):
    """What a device reaches on one kind of operators; what is left out is as for all operators."""

    fp32_achievable: FlopsPerSecond | Estimate[FlopsPerSecond] | None = Field(
        None, description="fp32 FLOP/s on this kind of operators, in place of compute.fp32_achievable."
    )
    memory_bandwidth: BytesPerSecond | Estimate[BytesPerSecond] | None = Field(
        None, description="Bytes per second in this kind of operators, in place of compute.memory_bandwidth."
    )
    operator_overhead: Seconds | Estimate[Seconds] | None = Field(
        None, description="Seconds for each operator of this kind, in place of compute.operator_overhead."
    )


class Compute(Options):
    """How fast the device executes the operators of a training step, in 32-bit floating point."""

    processor: str = Field(description="The processor that trains, with cores and clock.")
    fp32_peak: FlopsPerSecond | Estimate[FlopsPerSecond] = Field(
        description="Theoretical fp32 FLOP/s (cores x FLOPs per cycle x clock); for orientation, no time depends on it."
    )
    fp32_achievable: FlopsPerSecond | Estimate[FlopsPerSecond] = Field(
        description="fp32 FLOP/s that large operators of a training step reach; the compute roof."
    )
    memory_bandwidth: BytesPerSecond | Estimate[BytesPerSecond] = Field(
        description="Bytes per second that large operators move to and from main memory; the memory roof."
    )
    operator_overhead: Seconds | Estimate[Seconds] = Field(
        description="Seconds that every launched operator costs beside its arithmetic (dispatch, allocation, launch)."
    )
    step_overhead: Seconds | Estimate[Seconds] = Field(
        description="Seconds that every training step costs beside its operators (next batch, the loop itself)."
    )
    operator_rates: dict[OperatorKind, OperatorRates] = Field(
        default_factory=dict, description="Figures of single kinds of operators, where they are known."
    )
    jitter: float = Field(
        0.0, ge=0, le=2, description="Spread of a round's duration by chance: sigma of a lognormal factor of mean 1."
    )
    background_load: AnyLoad = Field(
        Load(low=0, high=0), description="Part of the processor that other programs take, or its bounds."
    )
    thermal: Thermal | None = Field(None, description="How heat lowers the rate; null where it does not.")
    measured_steps: tuple[MeasuredStep, ...] = Field(
        (), description="Measured times of single training steps; they win over the roofline."
    )

    def measured(self, signature: str) -> MeasuredStep | None:
        """The measured time of a step, if the profile has it."""
        return next((each for each in self.measured_steps if each.signature == signature), None)

    @model_validator(mode="after")
    def _each_step_once(self) -> Self:
        signatures = [each.signature for each in self.measured_steps]
        if len(set(signatures)) < len(signatures):
            raise ValueError("expected each signature once in compute.measured_steps")
        return self


class Memory(Options):
    """How large a job it can hold."""

    total: Bytes = Field(gt=0, description="Main memory of the device.")
    training: Bytes | Estimate[Bytes] = Field(
        description="Memory that a training process can use beside the system; a job whose peak is above is refused."
    )


class RadioDirection(Options):
    """What the network interface draws in one direction: active + energy per megabyte x rate."""

    active: Watts | Estimate[Watts] = Field(
        description="Watts on top of what the device draws otherwise, as long as a transfer is under way, at any rate."
    )
    energy_per_megabyte: Joules | Estimate[Joules] = Field(
        description="Joules per 10^6 bytes moved, on top of `active` (b watts per Mbit/s are 8 b joules per megabyte)."
    )


class Tail(Options):
    """The state of high power in which a cellular radio stays after its last transfer."""

    seconds: Seconds = Field(description="How long it lasts.")
    watts: Watts | Estimate[Watts] = Field(description="Watts on top of what the device draws otherwise.")


class Radio(Options):
    """What the network interface draws."""

    down: RadioDirection = Field(description="While receiving.")
    up: RadioDirection = Field(description="While sending.")
    promotion: Joules | Estimate[Joules] = Field(
        0.0, description="Joules that waking the radio for a transfer costs, on top of `active`."
    )
    tail: Tail | None = Field(None, description="What it draws after its last transfer; null: it sleeps at once.")


class Power(Options):
    """What the device draws."""

    idle: Watts | Estimate[Watts] = Field(description="Watts of the whole device while it waits.")
    compute: Watts | Estimate[Watts] = Field(description="Watts of the whole device, idle included, while it trains.")
    radio: Radio = Field(description="What transfers draw on top of idle or compute.")

    @model_validator(mode="after")
    def _computing_draws_more_than_waiting(self) -> Self:
        if value(self.compute) < value(self.idle):
            compute, idle = value(self.compute), value(self.idle)
            raise ValueError(f"expected compute (whole device, {compute:g} W) to be at least idle ({idle:g} W)")
        return self


_Texts = tuple[Annotated[str, Field(min_length=1)], ...]


def _listed(sources: object) -> object:
    return [sources] if isinstance(sources, str) else sources


class Provenance(Options):
    """Where the figures come from."""

    sources: Annotated[_Texts, BeforeValidator(_listed, json_schema_input_type=str | _Texts)] = Field(
        min_length=1, description="Who says so: a text, or a list of them."
    )
    date: datetime.date = Field(description="When the figures were gathered.")
    licence: str | None = Field(None, description="Licence of the data used, where it has one.")
    verified: bool = Field(description="Whether every figure rests on a measurement or data sheet that was looked at.")
    derivation: dict[str, str] = Field(
        default_factory=dict, description="How a figure was derived from the sources, by its dotted path."
    )


class DeviceProfile(Options):
    """A kind of device.

    Quantities are in base units (FLOP/s, bytes/s, bytes, seconds, watts, joules) or texts with a unit; an uncertain one
    is ``{low, nominal, high}``.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="What scenarios and reports call it.")
    kind: Kind = Field(description="What sort of device it is.")
    description: str = Field(description="The exact device, in a sentence.")
    compute: Compute = Field(description="How fast it trains.")
    memory: Memory = Field(description="How large a job it can hold.")
    power: Power = Field(description="What it draws.")
    battery: Battery | None = Field(None, description="Its battery; null where it is on the mains.")
    provenance: Provenance = Field(description="Where the figures come from.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if value(self.memory.training, "high") > self.memory.total:
            raise ValueError("expected memory.training to be at most memory.total")
        if value(self.compute.fp32_achievable) > value(self.compute.fp32_peak, "high"):
            raise ValueError("expected compute.fp32_achievable to be at most compute.fp32_peak")
        figures = figure_paths()
        for path in self.provenance.derivation:
            if path not in figures:
                raise ValueError(f"provenance.derivation: unknown figure '{path}'; {nearest(path, figures)}")
        return self

    def sustained(self, hot: bool) -> float:
        """The part of its full rate that the processor computes at."""
        return self.compute.thermal.sustained if hot and self.compute.thermal is not None else 1.0

    def rates(
        self, bound: Bound = "nominal", *, kind: str = "", hot: bool = False
    ) -> tuple[float, float, float, float]:
        """FLOP/s, bytes/s, seconds per operator and seconds per step that give this bound of a *duration*.

        Args:
            bound: which bound of the duration.
            kind: of which operators; those of ``compute.operator_rates`` have figures of their own.
            hot: once heat has lowered the rate (``compute.thermal``).
        """
        compute = self.compute
        own = compute.operator_rates.get(kind, _NO_RATES)
        return (
            value(_either(own.fp32_achievable, compute.fp32_achievable), opposite(bound)) * self.sustained(hot),
            value(_either(own.memory_bandwidth, compute.memory_bandwidth), opposite(bound)),
            value(_either(own.operator_overhead, compute.operator_overhead), bound),
            value(compute.step_overhead, bound),
        )


_NO_RATES = OperatorRates(fp32_achievable=None, memory_bandwidth=None, operator_overhead=None)

Figure = float | Estimate[float]


def _either(own: Figure | None, general: Figure) -> Figure:
    return general if own is None else own


def figure_paths(model: type[BaseModel] = DeviceProfile, prefix: str = "") -> list[str]:
    """The dotted path of every figure of a profile.

    >>> figure_paths()[:2]
    ['compute.fp32_peak', 'compute.fp32_achievable']
    """
    paths: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not Load:
            if inner is not Provenance:
                paths += figure_paths(inner, f"{prefix}{name}.")
        elif prefix and inner is not str:
            paths.append(f"{prefix}{name}")
    return paths
