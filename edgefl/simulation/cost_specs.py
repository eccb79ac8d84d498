"""The options of ``cost:`` and ``round_overhead:``: how the FLOPs and seconds of a client's part are determined."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, Tag

from edgefl.errors import nearest
from edgefl.fleet import DeviceProfile
from edgefl.fleet.figure import Bounds
from edgefl.network.specs import redraw_rule
from edgefl.options import Options, kind_or, of_kind
from edgefl.randomness import generator
from edgefl.units import Seconds, ShortSeconds
from edgefl.validation import as_validator


class MeasuredCost(Options):
    """The operators of the method's step, on each device's roofline."""

    kind: Literal["measured"] = Field("measured", description="measured: the method's executed graph on the roofline")


class PaperCost(Options):
    """FedBR's own model (Liu et al. 2023, Eqs. 3-4): a formula for the cost of hybrid paths, and S/M bytes a block.

    A step costs FedAvg's, as executed, times 1 + α(α+1)/(2M); methods without hybrid paths have FedAvg's cost.
    """

    kind: Literal["paper"] = Field(description="paper: FedBR's Eqs. 3-4 instead of the executed operators")


class SecondsRange(Bounds, allow_inf_nan=False):
    """The range U(low, high) of a method's seconds of local training in one round."""

    low: Annotated[ShortSeconds, Field(ge=0)] = Field(description="minimum seconds of local training in a round")
    high: Annotated[ShortSeconds, Field(ge=0)] = Field(description="maximum seconds of local training in a round")


def _range(value: Any) -> Any:
    return {"low": value, "high": value} if isinstance(value, int | float | str) else value


@as_validator
def _rounds(value: Any) -> Any:
    if isinstance(value, str):
        kind, amount = redraw_rule(value)
        if kind != "rounds":
            raise ValueError(f"expected a number of rounds, '10 rounds', found '{value}'")
        return int(amount)
    return value


class SecondsCost(Options, allow_inf_nan=False):
    """Measured seconds of local training, drawn for each client from its method's range.

    The position within the range is the same for all methods, so a client that is slow for one is slow for all.

    >>> spec = SecondsCost(kind="seconds", methods={"fedavg": "4 s"}, redraw="10 rounds")
    >>> ComputeSeconds(spec, "fedavg", seed=0, clients=2).of(round=3)
    array([4., 4.])
    """

    kind: Literal["seconds"] = Field(description="seconds: drawn from measured ranges instead of the roofline")
    methods: dict[
        str, Annotated[SecondsRange, BeforeValidator(_range, json_schema_input_type=Seconds | SecondsRange)]
    ] = Field(
        min_length=1, description="the range of each method, by its label or by its name; a single quantity is constant"
    )
    redraw: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_rounds)] = Field(
        None, description="when seconds are redrawn, '10 rounds'; null: never"
    )

    def range_of(self, names: Sequence[str]) -> SecondsRange | None:
        return next((self.methods[name] for name in names if name in self.methods), None)


CostSpec = Annotated[
    Annotated[MeasuredCost, Tag("measured")]
    | Annotated[SecondsCost, Tag("seconds")]
    | Annotated[PaperCost, Tag("paper")],
    kind_or("measured"),
]
"""``cost:`` of a scenario; without a kind, the measured one."""


class ComputeSeconds:
    """The seconds of one method's local training, round by round."""

    def __init__(self, spec: SecondsCost, method: str, seed: int, clients: int) -> None:
        self._low, self._high = spec.methods[method].low, spec.methods[method].high
        self._redraw = spec.redraw
        self._place = lru_cache(1)(lambda draw: generator(seed, "compute seconds", draw).random(clients))

    def times(self, factor: float) -> ComputeSeconds:
        other = copy(self)
        other._low, other._high = self._low * factor, self._high * factor
        return other

    def of(self, round: int) -> NDArray[np.float64]:
        """Every client's seconds in a round (from 0), shape ``[clients]``."""
        place = self._place(0 if self._redraw is None else round // self._redraw)
        return np.asarray(self._low + (self._high - self._low) * place, np.float64)


FRAMEWORKS = {"flower": {"start": 14.5, "wait": 13.4}, "flower-grpc": {"start": 0.2}}
"""flower: a process for each message (1.1x, SuperNode); flower-grpc: one process for all rounds (`start_client`)."""


class RoundOverhead(Options):
    """What a participation takes besides transfers and training; the client is idle, and its radio sleeps."""

    start: ShortSeconds = Field(0.0, description="to start a process and to load its data, on a core of speed 1")
    first: ShortSeconds = Field(0.0, description="the same, once for a client, such as the start of CUDA")
    wait: ShortSeconds = Field(default=0.0, description="until a message is fetched, on any device")
    per_megabyte: Seconds = Field(0.0, description="to serialise 10^6 bytes, in each direction, on a core of speed 1")

    def before_training(self, device: DeviceProfile, received: float, *, first: bool = False) -> float:
        """Seconds on a device after it has received so many bytes, in its ``first`` participation or a later one."""
        start = self.start + first * self.first
        return self.wait + (start + self.per_megabyte * received / 1e6) / device.core_speed

    def before_sending(self, device: DeviceProfile, sent: float) -> float:
        return self.per_megabyte * sent / 1e6 / device.core_speed


def _of_framework(value: Any) -> Any:
    """A name, or a mapping with a ``kind``, has the figures of that framework, except those that it gives."""
    if value == "none":
        return {}
    if not isinstance(value := of_kind(value), dict) or "kind" not in value:
        return value
    given = {name: figure for name, figure in value.items() if name != "kind"}
    if value["kind"] not in FRAMEWORKS:
        raise ValueError(f"unknown kind; {nearest(str(value['kind']), FRAMEWORKS)}")
    return {**FRAMEWORKS[value["kind"]], **given}


AnyOverhead = Annotated[RoundOverhead, BeforeValidator(_of_framework)]
"""``round_overhead:`` of a scenario: ``none``, ``flower`` or ``{kind: flower}``, or the seconds."""
