"""The contents of a device profile: speed, memory and power of a kind of device, and the sources of the figures."""

import datetime
import math
import warnings
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from edgefl.errors import Note, nearest
from edgefl.fleet.battery import Battery
from edgefl.fleet.figure import Bound, Bounds, Estimate, from_number, opposite, value
from edgefl.operator_kinds import RATED, Backend, kind_and_families
from edgefl.options import Options
from edgefl.units import (
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    MemoryBytes,
    OperatorSeconds,
    RadioJoules,
    RadioWatts,
    Seconds,
    ShortSeconds,
    StepSeconds,
    Watts,
)

Rate = FlopsPerSecond | Estimate[FlopsPerSecond]
Bandwidth = BytesPerSecond | Estimate[BytesPerSecond]
Overhead = OperatorSeconds | Estimate[OperatorSeconds]
RadioPower = RadioWatts | Estimate[RadioWatts]
RadioEnergy = RadioJoules | Estimate[RadioJoules]


class Thermal(Options):
    """Heat: the processor cannot keep its full rate permanently."""

    after: Seconds = Field(description="Seconds of continuous computing at the full rate.")
    sustained: float = Field(gt=0, le=1, description="Part of its speed that remains afterwards.")
    cooling: Seconds | None = Field(None, gt=0, description="Time constant of cooling; null: each job starts cool.")


class Load(Bounds):
    """The part of the processor that other programs use: drawn uniformly between two bounds for every round."""

    low: float = Field(ge=0, lt=1, description="Lowest part of the processor that other programs use.")
    high: float = Field(ge=0, lt=1, description="Highest part of the processor that other programs use.")


AnyLoad = Annotated[Load, BeforeValidator(from_number, json_schema_input_type=float | Load)]


class MeasuredStep(Options):
    """Measured seconds of a training step in place of the roofline's, and in proportion of similar steps."""

    signature: str = Field(pattern=r"^[0-9a-f]{16}$", description="Of the step, as `edgefl cost --json` prints it.")
    step: str = Field(description="A description for readers: model, method, batch.")
    seconds: ShortSeconds | Estimate[ShortSeconds] = Field(description="Duration of the step, including all overheads.")
    training_flops: float | None = Field(None, ge=0, description="FLOPs of the step, as in `edgefl cost --json`.")
    bytes_touched: Bytes | None = Field(None, description="Bytes that its operators move, as printed there.")
    launches: float | None = Field(None, ge=0, description="Executed operators, as printed there.")

    @property
    def work(self) -> tuple[float, float, float] | None:
        """FLOPs, bytes and operators; ``None`` if one of them is not given."""
        work = (self.training_flops, self.bytes_touched, self.launches)
        return None if None in work else work  # type: ignore[return-value]


NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

Kind = Literal["sbc", "jetson", "phone", "laptop", "pc", "microcontroller"]
Direction = Literal["down", "up"]


def _known(kind: str) -> str:
    if kind not in RATED:
        raise ValueError(f"unknown kind of operators; {nearest(kind, RATED)}")
    return kind


OperatorKind = Annotated[str, AfterValidator(_known)]


class OperatorRates(Options):
    """Rates of a device for one kind of operators; rates not given are those for all operators."""

    fp32_achievable: Rate | None = Field(None, description="fp32 FLOP/s on them, in place of compute.fp32_achievable.")
    memory_bandwidth: Bandwidth | None = Field(None, description="Bytes/s, in place of compute.memory_bandwidth.")
    operator_overhead: Overhead | None = Field(None, description="Seconds, in place of compute.operator_overhead.")


class Compute(Options):
    """How fast the device executes the operators of a training step, in 32-bit floating point."""

    processor: str = Field(description="The processor used for training, with cores and clock.")
    fp32_peak: Rate = Field(description="Theoretical FLOP/s (cores x FLOPs per cycle x clock), for orientation only.")
    fp32_achievable: Rate = Field(description="fp32 FLOP/s that large operators reach; the compute roof.")
    memory_bandwidth: Bandwidth = Field(description="Bytes/s of large operators to and from memory; the memory roof.")
    operator_overhead: Overhead = Field(description="Seconds of each launched operator (dispatch, allocation, launch).")
    step_overhead: StepSeconds | Estimate[StepSeconds] = Field(description="Of every step (next batch, loop itself).")
    operator_rates: Annotated[
        dict[OperatorKind, OperatorRates],
        BeforeValidator(
            lambda rates: {} if rates is None else rates,
            json_schema_input_type=dict[OperatorKind, OperatorRates] | None,
        ),
    ] = Field(default_factory=dict, description="Figures for single kinds of operators, if known; null: none.")
    half_rate_pixels: float | Estimate[float] = Field(
        0.0, description="Output pixels at which a convolution reaches half of its rate: n / (n + this)."
    )
    group_overhead: Overhead = Field(0.0, description="Seconds of each group in a grouped convolution's backward pass.")
    core_speed: float | None = Field(None, gt=0, description="Of a core that reads; null: 50 us / operator_overhead.")
    cores: int | None = Field(None, ge=1, description="Cores that the input pipeline shares; null: it needs none.")
    jitter: float = Field(0.0, ge=0, le=2, description="Random variation of a round: sigma of a lognormal factor.")
    background_load: AnyLoad = Field(Load(low=0, high=0), description="What others use of the processor, or bounds.")
    thermal: Thermal | None = Field(None, description="How heat lowers the rate; null: it does not.")
    measured_steps: tuple[MeasuredStep, ...] = Field((), description="Times of steps; they replace the roofline's.")
    cpu_quota: float | None = Field(
        None, gt=0, le=1024, description="Of this machine, to stand for the device in `emulate --compute real`."
    )

    @model_validator(mode="after")
    def _each_step_once(self) -> Self:
        signatures = [each.signature for each in self.measured_steps]
        if len(set(signatures)) < len(signatures):
            raise ValueError("expected each signature once in compute.measured_steps")
        return self


class Memory(Options):
    """The device's memory, which limits the size of a job."""

    total: MemoryBytes = Field(gt=0, description="Main memory of the device.")
    training: MemoryBytes | Estimate[MemoryBytes] = Field(description="For training; larger jobs are refused.")


class RadioDirection(Options):
    """Power of the network interface in one direction: active + energy per megabyte x rate."""

    active: RadioPower = Field(description="Additional watts during a transfer, at any rate.")
    energy_per_megabyte: RadioEnergy = Field(description="Joules per 10^6 bytes: 8 b for b watts per Mbit/s.")


class Tail(Options):
    """The state of high power in which a cellular radio stays after its last transfer."""

    seconds: Seconds = Field(description="Duration of this state.")
    watts: RadioPower = Field(description="Additional watts in this state.")


class Radio(Options):
    """Power of the network interface."""

    down: RadioDirection = Field(description="While receiving.")
    up: RadioDirection = Field(description="While sending.")
    promotion: RadioEnergy = Field(0.0, description="Joules for waking the radio, in addition to `active`.")
    tail: Tail | None = Field(None, description="High-power state after the last transfer; null: none.")


class Power(Options):
    """Power of the device."""

    idle: Watts | Estimate[Watts] = Field(description="Watts of the whole device while it waits.")
    compute: Watts | Estimate[Watts] = Field(description="Watts of the whole device, idle included, while it trains.")
    one_core: Watts | Estimate[Watts] | None = Field(
        None, description="Of the whole device while one core reads and training waits; null: from idle and compute."
    )
    radio: Radio = Field(description="Power of transfers, in addition to idle or compute.")

    @model_validator(mode="after")
    def _computing_draws_more_than_waiting(self) -> Self:
        if value(self.compute) < value(self.idle):
            compute, idle = value(self.compute), value(self.idle)
            raise ValueError(f"expected compute (whole device, {compute:g} W) to be at least idle ({idle:g} W)")
        return self


_Texts = tuple[Annotated[str, Field(min_length=1)], ...]


UNKNOWN, UNKNOWN_FACTOR = "a factor of 2 to 3", 2.0
"""The error of figures that rest on other devices, as published rounds have it (docs/validation.md), and the least."""


def error_words(error: float) -> str:
    """A relative error in words.

    >>> error_words(0.102), error_words(3.3)
    ('±10 %', 'a factor of 4.3')
    """
    return f"±{100 * error:.0f} %" if error < 1 else f"a factor of {1 + error:.2g}"


class Evidence(Options):
    """What confirms a figure, or the figures of a section."""

    kind: Literal["measured", "fitted", "derived", "estimated"] = Field(
        description="measured: on the device itself; fitted: to measured times of training steps; derived: from the "
        "figures of another profile; estimated: from data sheets and benchmarks."
    )
    source: str = Field(min_length=1, description="The measurement, table, profile or rule that it rests on.")
    count: int | None = Field(None, ge=1, description="Number of measured times.")
    error: float | None = Field(None, ge=0, description="Mean error of steps that were not used; 3: a factor of 4.")
    framework: str | None = Field(None, min_length=1, description="Software that executed the steps, with its version.")

    @property
    def factor(self) -> float:
        """By how much predicted seconds may be too few or too many; 1 if nothing is known of measured figures."""
        if self.error is not None:
            return 1 + self.error
        return UNKNOWN_FACTOR if self.kind in {"derived", "estimated"} else 1.0

    def __str__(self) -> str:
        """A few words, such as ``fitted, ±10 %``, or what the figures of other devices are worth.

        >>> print(Evidence(kind="fitted", source="a table", count=63, error=0.102))
        fitted, ±10 %
        """
        if self.error is not None:
            return f"{self.kind}, {error_words(self.error)}"
        return f"{self.kind}, {UNKNOWN}" if self.kind in {"derived", "estimated"} else self.kind


class Provenance(Options):
    """The sources of the figures."""

    sources: Annotated[
        _Texts, BeforeValidator(lambda it: [it] if isinstance(it, str) else it, json_schema_input_type=str | _Texts)
    ] = Field(min_length=1, description="The sources: a text, or a list of texts.")
    date: datetime.date = Field(description="When the figures were gathered.")
    licence: str | None = Field(None, description="Licence of the data used, if any.")
    verified: bool = Field(description="Whether every figure was checked against a measurement or data sheet.")
    derivation: dict[str, str] = Field(default_factory=dict, description="How the figure of a dotted path was derived.")
    evidence: dict[str, Evidence] = Field(
        default_factory=dict, description="For the path of a figure or section, what confirms it; without: estimated."
    )


MOST_WATTS: Mapping[Kind, float] = {
    "microcontroller": 5, "phone": 30, "sbc": 60, "jetson": 100, "laptop": 400, "pc": math.inf
}  # fmt: skip
"""Of a whole device that trains."""


class Mode(Options):
    """A power mode of a board, as ``nvpmodel`` sets it: its clocks relative to those that the profile describes."""

    cpu: float = Field(1.0, gt=0, le=10, description="Clock of the cores that launch operators and read data.")
    gpu: float = Field(1.0, gt=0, le=10, description="Clock of the processor that trains.")
    memory: float = Field(1.0, gt=0, le=10, description="Clock of the memory.")
    watts: Watts | None = Field(None, description="Watts of the whole device while it trains; null: power.compute.")
    idle: Watts | None = Field(None, description="Watts of the whole device while it waits; null: power.idle.")


class DeviceProfile(Options):
    """A kind of device; quantities are in base units, or texts with a unit, or ``{low, nominal, high}``."""

    name: str = Field(pattern=NAME, description="The name of the device in scenarios and reports.")
    kind: Kind = Field(description="The kind of device.")
    description: str = Field(description="The exact device, in a sentence.")
    stack: str | None = Field(None, description="The software that trains, with its version: others may be far slower.")
    compute: Compute = Field(description="How fast it trains.")
    memory: Memory = Field(description="Memory, which limits the size of a job.")
    power: Power = Field(description="Power consumption.")
    battery: Battery | None = Field(None, description="The battery; null: the device uses mains power.")
    modes: dict[Annotated[str, Field(pattern=NAME)], Mode] = Field(
        default_factory=dict, description="Other power modes, which an entry of a fleet may name."
    )
    provenance: Provenance = Field(description="The sources of the figures.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if value(self.memory.training, "high") > self.memory.total:
            raise ValueError("expected memory.training to be at most memory.total")
        if value(self.compute.fp32_achievable) > value(self.compute.fp32_peak, "high"):
            raise ValueError("expected compute.fp32_achievable to be at most compute.fp32_peak")
        watts = value(self.power.compute)
        if watts > MOST_WATTS[self.kind]:
            milli = f"{watts:g} W are many for this kind of device ({self.kind}); are they milliwatts?"
            warnings.warn(f"power.compute: {milli}", Note, stacklevel=1)
        for name, mode in self.modes.items():
            if (most := mode.watts or watts) < (idle := mode.idle or value(self.power.idle)):
                raise ValueError(f"modes.{name}: expected watts ({most:g} W) to be at least idle ({idle:g} W)")
        figures = figure_paths()
        for path in self.provenance.derivation:
            if path not in figures:
                raise ValueError(f"provenance.derivation: unknown figure '{path}'; {nearest(path, figures)}")
        sections = sorted({path.rpartition(".")[0] for path in figures})
        for path in self.provenance.evidence:
            if path not in figures and path not in sections:
                raise ValueError(f"provenance.evidence: unknown '{path}'; {nearest(path, [*sections, *figures])}")
        return self

    def evidence(self, path: str) -> Evidence:
        """The evidence given for the dotted path of a figure, or else for the section that contains it."""
        while path:
            if path in self.provenance.evidence:
                return self.provenance.evidence[path]
            path = path.rpartition(".")[0]
        return Evidence(kind="estimated", source="see provenance")

    @property
    def software(self) -> str:
        """The stack, or else that of the evidence for its speed."""
        return self.stack or self.evidence("compute").framework or "not stated"

    @property
    def backend(self) -> Backend:
        """``cuda`` if the processor or the software has the word CUDA; a Jetson trains on its GPU."""
        return "cuda" if self.kind == "jetson" or "CUDA" in self.compute.processor + self.software else "cpu"

    @property
    def core_speed(self) -> float:
        """Of one core in reading data, 1 for a Raspberry Pi 4."""
        compute = self.compute
        return compute.core_speed or REFERENCE_OVERHEAD / max(value(compute.operator_overhead), 1e-9)

    def rates(self, bound: Bound = "nominal", *, kind: str = "") -> tuple[float, float, float, float]:
        """FLOP/s, bytes/s, seconds per operator and step for this bound of a *duration*; those of the ``kind``."""
        compute = self.compute
        given = compute.operator_rates
        own = next((given[each] for each in kind_and_families(kind) if each in given), None)
        rate, bandwidth, overhead = (
            getattr(compute if getattr(own, name, None) is None else own, name) for name in OperatorRates.model_fields
        )
        speed = opposite(bound)
        return value(rate, speed), value(bandwidth, speed), value(overhead, bound), value(compute.step_overhead, bound)


Figure = float | Estimate[float]


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


REFERENCE_OVERHEAD = 50e-6
"""Seconds of an operator's overhead on a Raspberry Pi 4."""
