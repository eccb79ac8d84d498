"""A device profile with other figures: slower, or in another power mode."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

from edgefl.errors import UserError, nearest
from edgefl.fleet.figure import scaled
from edgefl.fleet.profile import Compute, DeviceProfile, Evidence

Part = TypeVar("Part", bound=BaseModel)

RATES = ("fp32_peak", "fp32_achievable", "memory_bandwidth", "core_speed", "cpu_quota")
"""Figures of ``compute`` that are rates: larger ones give fewer seconds."""

DURATIONS = ("operator_overhead", "step_overhead", "group_overhead")


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
    steps = tuple(scaled_figures(step, {"seconds": factor}) for step in profile.compute.measured_steps)
    compute = scaled_compute(profile.compute, factors).model_copy(update={"measured_steps": steps})
    return profile.model_copy(update={"compute": compute})


def in_mode(profile: DeviceProfile, name: str) -> DeviceProfile:
    """The same board in another power mode of its profile, without its measured steps; nothing confirms its speed.

    >>> from edgefl.fleet import load_profile
    >>> board = load_profile("jetson-agx-xavier")
    >>> round(in_mode(board, "30W").core_speed / board.core_speed, 2)
    0.53
    """
    if name not in profile.modes:
        hint = f"; {nearest(name, profile.modes)}" if profile.modes else "s"
        raise UserError(f"{profile.name} has no {'such ' * bool(profile.modes)}power mode{hint}")
    mode = profile.modes[name]
    factors = {
        **dict.fromkeys(("fp32_peak", "fp32_achievable"), mode.gpu),
        **dict.fromkeys(DURATIONS, 1 / mode.cpu),
        "memory_bandwidth": mode.memory,
        "core_speed": mode.cpu,
    }
    compute = scaled_compute(profile.compute, factors).model_copy(update={"measured_steps": ()})
    watts = {"compute": mode.watts, "idle": mode.idle}
    power = profile.power.model_copy(update={part: each for part, each in watts.items() if each is not None})
    update = {"name": f"{profile.name}-{name}", "compute": compute, "power": power, "modes": {}}
    changed = profile.model_copy(update=update)
    return unconfirmed(changed, f"the figures of {profile.name}, with the clocks of mode {name}")


def unconfirmed(profile: DeviceProfile, source: str) -> DeviceProfile:
    """The same device; its evidence for ``compute`` says that nothing confirms these figures."""
    others = {path: each for path, each in profile.provenance.evidence.items() if path.split(".")[0] != "compute"}
    others["compute"] = Evidence(kind="estimated", source=source, framework=profile.evidence("compute").framework)
    return profile.model_copy(update={"provenance": profile.provenance.model_copy(update={"evidence": others})})


def scaled_compute(compute: Compute, factors: Mapping[str, float]) -> Compute:
    """The same processor; its figures, also those of kinds of operators, are multiplied by the factors."""
    return scaled_kinds(scaled_figures(compute, factors), factors)


def scaled_kinds(compute: Compute, factors: Mapping[str, float]) -> Compute:
    """The same processor; the figures of single kinds of operators are multiplied by the factors of their names."""
    kinds = {kind: scaled_figures(rates, factors) for kind, rates in compute.operator_rates.items()}
    return compute.model_copy(update={"operator_rates": kinds})


def scaled_figures(part: Part, factors: Mapping[str, float]) -> Part:
    """The same part of a profile; its figures are multiplied by the factors of their names."""
    found = {name: getattr(part, name, None) for name in factors}
    changed = {name: scaled(figure, factors[name]) for name, figure in found.items() if figure is not None}
    return part.model_copy(update=changed)
