"""The ``engine:`` of a scenario's training, and the choice of an engine: by rule, not by timing, to be repeatable."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BeforeValidator, Field, model_validator

from edgefl.errors import UserError
from edgefl.hardware import EngineKind, cores
from edgefl.methods.parts.local_step import Precision
from edgefl.options import Component
from edgefl.training.base import ENGINES
from edgefl.validation import validated

Convolutions = Literal["grouped", "products"]


class EngineSpec(Component):
    """The training engine and its numerical precision."""

    kind: EngineKind = Field(
        default="auto",
        description="auto chooses by the device and its cores, not by timing; batched rounds differently from the "
        "others, which agree to the bit",
    )
    precision: Precision = Field(
        default="float32",
        description="precision of products in a local step: float32, tf32 (CUDA only) or bfloat16 (autocast); "
        "parameters, aggregation and evaluation are always float32",
    )
    convolutions: Convolutions = Field(
        default="grouped",
        description="for engine batched, how clients' convolutions are combined: grouped is one convolution with a "
        "group for each client; products multiplies matrices of patches, which needs more memory; which is faster "
        "depends on the device",
    )

    @model_validator(mode="after")
    def _options_apply(self) -> Self:
        for name, value in self.options().items():
            if value != type(self).model_fields[name].default and name not in _options_of(self.kind):
                kind = next(engine for engine, entry in ENGINES if name in entry.options)
                raise ValueError(
                    f"{name}: {value} applies to the engine '{kind}' only, found kind: {self.kind}; "
                    f"set kind: {kind}, or delete it"
                )
        return self

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name not in {"kind", "precision"}}

    @classmethod
    def of(cls, value: EngineSpec | str) -> Self:
        """A specification unchanged, or the default specification of a named engine."""
        return validated(cls, _mapping(value))


def _options_of(kind: str) -> tuple[str, ...]:
    return () if kind == "auto" else ENGINES[kind].options


def _mapping(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


EngineChoice = Annotated[EngineSpec, BeforeValidator(_mapping, json_schema_input_type=EngineKind | EngineSpec)]


def choose_engine(name: str, device: torch.device, workers: int | None = None) -> str:
    """The engine called ``name``; ``auto`` is resolved by the device and the number of cores.

    On a CUDA device ``auto`` is ``batched``: a local step of one client is hundreds of kernels that take less time than
    their launch, so clients train side by side, as many as 30 % of the device's memory can hold by the counted memory
    of a step, and steps are replayed as graphs. If not even two fit, clients are trained one after another, as with
    ``sequential``. On a CPU with more than one core ``auto`` is ``parallel`` (which runs a single job in the calling
    thread), else ``sequential``. These two give bit-identical results, so the choice changes only the duration;
    ``batched`` agrees with them within rounding. ``ray``, which uses other machines, must be chosen by name.

    >>> choose_engine("auto", torch.device("cpu"), workers=2), choose_engine("auto", torch.device("cpu"), workers=1)
    ('parallel', 'sequential')
    """
    if name == "auto":
        if device.type == "cuda":
            return "batched"
        return "parallel" if device.type == "cpu" and (workers or cores()) > 1 else "sequential"
    devices = ENGINES[name].devices
    if device.type not in devices:
        raise UserError(
            f"engine '{name}' runs on {' and '.join(devices)}, not on {device.type}; choose 'sequential' or 'auto'"
        )
    return name


def engines_on(device: torch.device) -> tuple[str, ...]:
    """The engines that run on a device of this machine.

    >>> engines_on(torch.device("cuda"))
    ('batched', 'sequential')
    """
    return tuple(name for name, entry in ENGINES if not entry.elsewhere and device.type in entry.devices)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Check that the device supports the precision."""
    if precision == "tf32" and device.type != "cuda":
        raise UserError(
            f"tf32 is a precision of CUDA devices and training runs on {device.type}; expected float32 or bfloat16",
            field="training.engine.precision",
        )
