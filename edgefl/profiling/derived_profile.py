"""Derive the profile of a device from that of a similar one, by three ratios of their speeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from edgefl.fleet import DeviceProfile
from edgefl.fleet.figure import Bound, bounds_around, rounded, value
from edgefl.fleet.profile import Figure
from edgefl.profiling.evidence import with_evidence
from edgefl.validation import validated

SCALAR = 0.5
"""Kinds whose figure is below this part of the general one are limited by neither vector units nor memory."""

BOUNDS: tuple[Bound, ...] = get_args(Bound)

Bounds = dict[str, float]


@dataclass(frozen=True)
class Ratios:
    """The speeds of a device relative to another.

    Attributes:
        dense: of large products, such as the ratio of Linpack results.
        scalar: of code without vector units, such as clock x instructions per cycle.
        bandwidth: of main memory.
    """

    dense: float
    scalar: float
    bandwidth: float


def derived_profile(base: DeviceProfile, device: DeviceProfile, ratios: Ratios, error: float = 0.5) -> dict[str, Any]:
    """Return the data of ``device`` with rates derived from those of ``base``.

    Dense kinds of operators scale with ``ratios.dense`` and memory with ``ratios.bandwidth``. Where the base
    is far slower than in general (depthwise convolutions), neither its vector units nor its memory are the limit, and
    the figure scales with ``ratios.scalar``. Overheads do too, and keep the width of their bounds.

    Args:
        base: a profile with measured or fitted rates.
        device: the profile whose memory, power and peak are kept.
        ratios: the speeds of the device relative to the base.
        error: the relative error for which bounds are given.

    Raises:
        UserError: the figures do not form a valid profile.
    """
    compute, factor = base.compute, 1 + error
    rate, bandwidth = value(compute.fp32_achievable), value(compute.memory_bandwidth)

    def scaled(figure: float, general: float, ratio: float) -> Bounds:
        return bounds_around(figure * (ratios.scalar if figure < SCALAR * general else ratio), factor)

    def slower(overhead: Figure) -> Bounds:
        return {bound: rounded(value(overhead, bound) / ratios.scalar) for bound in BOUNDS}

    kinds: dict[str, dict[str, Bounds]] = {}
    for kind, own in compute.operator_rates.items():
        made: dict[str, Bounds] = {}
        if own.fp32_achievable is not None:
            made["fp32_achievable"] = scaled(value(own.fp32_achievable), rate, ratios.dense)
        if own.memory_bandwidth is not None:
            made["memory_bandwidth"] = scaled(value(own.memory_bandwidth), bandwidth, ratios.bandwidth)
        if own.operator_overhead is not None:
            made["operator_overhead"] = slower(own.operator_overhead)
        kinds[kind] = made
    data: dict[str, Any] = device.model_dump(mode="json", exclude_none=True)
    data["compute"].pop("cpu_quota", None)
    data["compute"] |= {
        "fp32_achievable": bounds_around(ratios.dense * rate, factor),
        "memory_bandwidth": bounds_around(ratios.bandwidth * bandwidth, factor),
        "operator_overhead": slower(compute.operator_overhead),
        "step_overhead": slower(compute.step_overhead),
        "operator_rates": kinds,
        "measured_steps": [],
    }
    evidence = base.evidence("compute")
    how = (
        f"derived from {base.name}: products x {ratios.dense:.3g}, memory x {ratios.bandwidth:.3g}, scalar code and "
        f"overheads x {ratios.scalar:.3g}"
    )
    # What is derived from an estimate is one.
    kind = "estimated" if evidence.kind == "estimated" else "derived"
    data["provenance"] = with_evidence(
        data["provenance"], {"kind": kind, "source": how, "framework": evidence.framework}, how
    )
    validated(DeviceProfile, data)
    return data
