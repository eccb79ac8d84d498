"""Derive the profile of a device from that of a similar one, by three ratios of their speeds."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile
from edgefl.fleet.figure import Bound, bounds_around, rounded, value
from edgefl.fleet.library import note_doubtful
from edgefl.fleet.profile import Figure
from edgefl.profiling.measured_profile import usable_memory, with_evidence
from edgefl.profiling.step_table import StepTime
from edgefl.validation import validated

SCALAR = 0.5
"""Kinds whose figure is below this part of the general one are limited by neither vector units nor memory."""

BOUNDS: tuple[Bound, ...] = get_args(Bound)


class Ratios(NamedTuple):
    """The speeds of a device relative to another: in large products, in code without vector units, and of memory."""

    dense: float
    scalar: float
    bandwidth: float
    groups: float | None = None  # in looping over groups; None: as scalar
    small: float = 1.0  # factor on the pixels at half rate
    step: float = 1.0  # factor on a step's overhead


def derived_profile(base: DeviceProfile, device: DeviceProfile, ratios: Ratios, error: float = 0.5) -> dict[str, Any]:
    """The data of ``device`` with rates derived from those of ``base``, and bounds for this relative error.

    Dense kinds of operators scale with ``ratios.dense`` and memory with ``ratios.bandwidth``. Where a base without GPU
    is far slower than in general (depthwise convolutions), neither its vector units nor its memory are the limit, and
    the figure scales with ``ratios.scalar``. Overheads do too, with bounds that are at least as wide as they were; so
    does reading, unless the device has its own figure.
    """
    compute, factor = base.compute, 1 + error
    rate, bandwidth = value(compute.fp32_achievable), value(compute.memory_bandwidth)

    def scaled(figure: float, general: float, ratio: float) -> dict[str, float]:
        limited = base.backend == "cpu" and figure < SCALAR * general
        return bounds_around(figure * (ratios.scalar if limited else ratio), factor)

    def slower(overhead: Figure, ratio: float = ratios.scalar) -> dict[str, float]:
        low, nominal, high = (value(overhead, bound) / ratio for bound in BOUNDS)
        wide = min(low, nominal / factor), nominal, max(high, nominal * factor)
        return dict(zip(BOUNDS, map(rounded, wide), strict=True))

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
        "step_overhead": slower(compute.step_overhead, ratios.scalar / ratios.step),
        "operator_rates": kinds,
        "measured_steps": [],
    }
    if value(compute.group_overhead):
        data["compute"]["group_overhead"] = slower(compute.group_overhead, ratios.groups or ratios.scalar)
    if value(compute.half_rate_pixels):
        data["compute"]["half_rate_pixels"] = slower(compute.half_rate_pixels, 1 / ratios.small)
    if compute.core_speed and (device is base or not device.compute.core_speed):
        data["compute"]["core_speed"] = rounded(compute.core_speed * ratios.scalar)
    evidence = base.evidence("compute")
    how = (
        f"derived from {base.name}: products x {ratios.dense:.3g}, memory x {ratios.bandwidth:.3g}, scalar code and "
        f"overheads x {ratios.scalar:.3g}"
    )
    # What is derived from an estimate is one.
    kind = "estimated" if evidence.kind == "estimated" else "derived"
    stated = {"kind": kind, "source": how, "framework": evidence.framework}
    data["provenance"] = with_evidence(data["provenance"], stated, how)
    validated(DeviceProfile, data)
    return data


class DataSheet(NamedTuple):
    """What a data sheet says of a board: all cores alike, and the theoretical bandwidth of its memory."""

    cores: int
    gigahertz: float
    gigabytes_per_second: float


DATA_SHEETS: Mapping[str, DataSheet] = {
    "raspberry-pi-4": DataSheet(4, 1.8, 12.8),
    "raspberry-pi-4-torch1": DataSheet(4, 1.8, 12.8),
    "raspberry-pi-5": DataSheet(4, 2.4, 17.1),
    "raspberry-pi-5-torch1": DataSheet(4, 2.4, 17.1),
}
"""Of boards whose speed is known from measured steps."""

GUESS = 2.0
"""Relative error of guessed seconds: a factor of 3, either way. Of ten boards, each left out, nine were off by at most
1.75 and one by 2.3 (tests/profiling/test_derived_profile.py)."""


def guessed_profile(
    base: DeviceProfile, name: str, sheet: DataSheet, watts: float, memory: float | None = None
) -> dict[str, Any]:
    """The data of a board that is known only from its data sheet and from its ``watts`` under full load.

    Its rates are those of the board ``base``. Large products scale with cores x GHz x watts, because a wider core draws
    more at the same clock; code without vector units with GHz x √watts; memory with its theoretical bandwidth.

    Raises:
        UserError: the data sheet of ``base`` is not among :data:`DATA_SHEETS`.
    """
    if base.name not in DATA_SHEETS:
        raise UserError(f"expected one of: {', '.join(DATA_SHEETS)}; found {base.name}", field="base")
    known, more = DATA_SHEETS[base.name], watts / value(base.power.compute)
    clock = sheet.gigahertz / known.gigahertz
    ratios = Ratios(
        dense=sheet.cores / known.cores * clock * more,
        scalar=clock * math.sqrt(more),
        bandwidth=sheet.gigabytes_per_second / known.gigabytes_per_second,
    )
    total = memory or 2.0**30
    rate = value(base.compute.fp32_achievable)
    peak = max(16e9 * sheet.cores * sheet.gigahertz, ratios.dense * rate)
    text = f"{sheet.cores} cores at {sheet.gigahertz:g} GHz, {sheet.gigabytes_per_second:g} GB/s, {watts:g} W"
    data = base.model_dump(mode="json", exclude_none=True)
    data |= {"name": name, "kind": "sbc", "description": f"{text}; its speed is a guess"}
    data["compute"] |= {"processor": text, "cores": sheet.cores, "core_speed": None}
    data["compute"]["fp32_peak"] = bounds_around(max(peak, rate), 2)
    data["memory"] = usable_memory(total)
    data["power"] |= {"compute": bounds_around(watts, 1.3), "idle": bounds_around(0.36 * watts, 1.8), "one_core": None}
    data["provenance"] = {
        "sources": [f"its data sheet, and the profile {base.name}"],
        "date": datetime.date.today().isoformat(),
        "verified": False,
        "derivation": {
            "compute.fp32_peak": "guessed: 16 fp32 FLOP a cycle and core",
            "memory.total": "given by the user" if memory else "not given: 1 GiB",
            "power.compute": "given by the user",
            "power.idle": "guessed: a fifth to two thirds of the watts under load, as of ten boards",
        },
    }
    found = derived_profile(base, validated(DeviceProfile, data), ratios, GUESS)
    found["compute"]["fp32_peak"] = bounds_around(peak, 2)
    evidence = found["provenance"]["evidence"]["compute"]
    evidence |= {"kind": "estimated", "error": GUESS, "source": f"guessed from {text}; {evidence['source']}"}
    note_doubtful(validated(DeviceProfile, found))
    return found


SPREADS = Ratios(dense=0.5, scalar=0.5, bandwidth=0.5, groups=1.0, small=0.7, step=1.0)
"""Standard deviations of the logarithms of the ratios between two similar boards, or two stacks on one board."""

NOISE = 0.1
"""Relative error of a measured step that the ratios do not explain."""

AWAY = 10.0
"""Keeps unknowns away from zero: steps of numerical derivatives are relative, and figures have four digits."""

SCARCE_GROUP, SCARCE_PIXELS = 1e-4, 3.0
"""Seconds of a group on a core of speed 1, and pixels at half rate, that are scaled if the similar board has none."""


def fitted_ratios(times: Sequence[StepTime], like: DeviceProfile) -> tuple[DeviceProfile, Ratios]:
    """The ratios to the profile ``like`` that are likeliest given a few times of steps; and what they scale.

    A few steps determine only some of the ratios. The others stay near 1, which is the maximum a posteriori of ratios
    that are lognormal with :data:`SPREADS`.
    """
    from scipy.optimize import least_squares

    compute = like.compute
    loops = {
        "group_overhead": compute.group_overhead if value(compute.group_overhead) else SCARCE_GROUP / like.core_speed,
        "half_rate_pixels": compute.half_rate_pixels if value(compute.half_rate_pixels) else SCARCE_PIXELS,
    }
    wider = [2.0 if loops[name] != getattr(compute, name) else 1.0 for name in loops]
    scaled = compute.model_copy(update={**loops, "fp32_peak": 1e18, "measured_steps": ()})
    base = like.model_copy(update={"compute": scaled})
    spreads = np.array(SPREADS) * [1, 1, 1, *wider, 1]
    measured = np.log([time.seconds for time in times])

    def misses(x: NDArray[np.float64]) -> NDArray[np.float64]:
        device = validated(DeviceProfile, derived_profile(base, base, Ratios(*np.exp(x - AWAY).tolist())))
        predicted = np.log([time.on(device) for time in times])
        return np.concatenate([(predicted - measured) / NOISE, (x - AWAY) / spreads])

    found = least_squares(
        misses, np.full(len(spreads), AWAY), diff_step=[1e-3] * len(spreads), x_scale=spreads, max_nfev=30
    )
    return base, Ratios(*np.exp(found.x - AWAY).tolist())
