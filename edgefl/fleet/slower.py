"""A device that computes faster or slower than its profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from edgefl.fleet.figure import scaled
from edgefl.fleet.profile import Compute, DeviceProfile

Part = TypeVar("Part", bound=BaseModel)

RATES = ("fp32_peak", "fp32_achievable", "memory_bandwidth", "cpu_quota")
"""Figures of ``compute`` that are rates: larger ones give fewer seconds."""

DURATIONS = ("operator_overhead", "step_overhead")
"""Figures of ``compute`` that are part of a step's seconds."""


def slower(profile: DeviceProfile, factor: float) -> DeviceProfile:
    """The same device, on which every training step takes ``factor`` times as long; below 1 it is faster.

    Memory, power and random slowdowns are unchanged.

    >>> from types import SimpleNamespace
    >>> from edgefl.fleet import load_profile, step_seconds
    >>> step, board = [SimpleNamespace(flops=2e9, bytes=1e6, count=3)], load_profile("raspberry-pi-5")
    >>> round(step_seconds(slower(board, 4), step) / step_seconds(board, step), 9)
    4.0
    """
    factors = {**dict.fromkeys(RATES, 1 / factor), **dict.fromkeys(DURATIONS, factor)}
    compute = scaled_kinds(scaled_figures(profile.compute, factors), factors)
    steps = tuple(scaled_figures(step, {"seconds": factor}) for step in compute.measured_steps)
    return profile.model_copy(update={"compute": compute.model_copy(update={"measured_steps": steps})})


def scaled_kinds(compute: Compute, factors: Mapping[str, float]) -> Compute:
    """The same processor; the figures of single kinds of operators are multiplied by the factors of their names."""
    kinds = {kind: scaled_figures(rates, factors) for kind, rates in compute.operator_rates.items()}
    return compute.model_copy(update={"operator_rates": kinds})


def scaled_figures(part: Part, factors: Mapping[str, float]) -> Part:
    """The same part of a profile; the figures that it has are multiplied by the factors of their names."""
    found = {name: getattr(part, name, None) for name in factors}
    return part.model_copy(
        update={name: scaled(figure, factors[name]) for name, figure in found.items() if figure is not None}
    )
