"""A device that computes faster or slower than its profile by one factor."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from edgefl.fleet.figure import scaled
from edgefl.fleet.profile import DeviceProfile

Part = TypeVar("Part", bound=BaseModel)

RATES = frozenset({"fp32_peak", "fp32_achievable", "memory_bandwidth"})
"""Figures of ``compute`` that are rates: larger ones give fewer seconds."""

DURATIONS = frozenset({"operator_overhead", "step_overhead", "seconds"})
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
    return profile.model_copy(update={"compute": _slower(profile.compute, factor)})


def _slower(part: Part, factor: float) -> Part:
    changes: dict[str, Any] = {}
    for name in type(part).model_fields:
        found = getattr(part, name)
        if name in RATES | DURATIONS:
            changes[name] = None if found is None else scaled(found, factor if name in DURATIONS else 1 / factor)
        elif name == "operator_rates":
            changes[name] = {kind: _slower(rates, factor) for kind, rates in found.items()}
        elif name == "measured_steps":
            changes[name] = tuple(_slower(step, factor) for step in found)
    return part.model_copy(update=changes)
