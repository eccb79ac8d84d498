"""Derive the profile of a device from that of a similar one, by three ratios of their speeds."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from edgefl.fleet import DeviceProfile
from edgefl.fleet.figure import Bound, bounds_around, rounded, value
from edgefl.fleet.profile import Figure
from edgefl.profiling.measured_profile import with_evidence
from edgefl.validation import validated

SCALAR = 0.5
"""Kinds whose figure is below this part of the general one are limited by neither vector units nor memory."""

BOUNDS: tuple[Bound, ...] = get_args(Bound)


class Ratios(NamedTuple):
    """The speeds of a device relative to another: in large products, in code without vector units, and of memory."""

    dense: float
    scalar: float
    bandwidth: float


def derived_profile(base: DeviceProfile, device: DeviceProfile, ratios: Ratios, error: float = 0.5) -> dict[str, Any]:
    """The data of ``device`` with rates derived from those of ``base``, and bounds for this relative error.

    Dense kinds of operators scale with ``ratios.dense`` and memory with ``ratios.bandwidth``. Where the base
    is far slower than in general (depthwise convolutions), neither its vector units nor its memory are the limit, and
    the figure scales with ``ratios.scalar``. Overheads do too, and keep the width of their bounds.

    Raises:
        UserError: the figures do not form a valid profile.
    """
    compute, factor = base.compute, 1 + error
    rate, bandwidth = value(compute.fp32_achievable), value(compute.memory_bandwidth)

    def scaled(figure: float, general: float, ratio: float) -> dict[str, float]:
        return bounds_around(figure * (ratios.scalar if figure < SCALAR * general else ratio), factor)

    def slower(overhead: Figure) -> dict[str, float]:
        return {bound: rounded(value(overhead, bound) / ratios.scalar) for bound in BOUNDS}

    rates = {"fp32_achievable": (rate, ratios.dense), "memory_bandwidth": (bandwidth, ratios.bandwidth)}
    kinds: dict[str, dict[str, dict[str, float]]] = {}
    for kind, own in compute.operator_rates.items():
        given = {name: figure for name in rates if (figure := getattr(own, name)) is not None}
        kinds[kind] = {name: scaled(value(figure), *rates[name]) for name, figure in given.items()}
        if own.operator_overhead is not None:
            kinds[kind]["operator_overhead"] = slower(own.operator_overhead)
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
