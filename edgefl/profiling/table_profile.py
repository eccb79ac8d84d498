"""Compare a device profile with a table of measured step times, or make a profile from one."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import expm1, log1p
from operator import attrgetter
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile
from edgefl.fleet.figure import bounds_around, rounded, value
from edgefl.fleet.fitting import LEAST_STEPS, Rates, fit_cuda, fit_families
from edgefl.fleet.profile import Figure
from edgefl.profiling.derived_profile import derived_profile, fitted_ratios
from edgefl.profiling.measured_profile import figures_by_kind, with_evidence
from edgefl.profiling.step_table import StepTable, StepTime
from edgefl.validation import validated


@dataclass(frozen=True)
class Compared:
    """A measured time and its prediction."""

    time: StepTime
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.time.seconds - 1


class Errors(NamedTuple):
    """Relative errors of at least one prediction, as fractions: e^x - 1 for the mean or median x of logarithms.

    So a quarter of the measured seconds is as far from them as four times.
    """

    mean_absolute: float
    median_absolute: float
    mean: float
    number: int

    @staticmethod
    def of(compared: Sequence[Compared]) -> Errors:
        errors = [log1p(each.error) for each in compared]
        sizes = [abs(error) for error in errors]
        return Errors(expm1(fmean(sizes)), expm1(median(sizes)), expm1(fmean(errors)), len(errors))

    def as_dict(self) -> dict[str, Any]:
        names = ("mean_absolute_error", "median_absolute_error", "mean_error", "count")
        return dict(zip(names, self, strict=True))


def errors_by(column: Literal["family", "part"], compared: Sequence[Compared]) -> dict[str, Errors]:
    """The errors of each family of models, or for each part that was trained."""
    key = attrgetter(f"time.{column}")
    return {name: Errors.of(list(group)) for name, group in groupby(sorted(compared, key=key), key)}


def as_dict(compared: Sequence[Compared], table: StepTable) -> dict[str, Any]:
    """Plain data for JSON."""
    steps = [
        {
            "line": each.time.line,
            "step": each.time.text,
            "model": each.time.model,
            "part": each.time.part,
            "family": each.time.family,
            "measured_seconds": each.time.seconds,
            "predicted_seconds": each.predicted,
            "error": each.error,
        }
        for each in compared
    ]
    return {
        **Errors.of(compared).as_dict(),
        "families": {name: errors.as_dict() for name, errors in errors_by("family", compared).items()},
        "parts": {name: errors.as_dict() for name, errors in errors_by("part", compared).items()},
        "steps": steps,
        "left_out": dict(table.left_out),
        "ignored_columns": list(table.ignored),
    }


FEW = 6
"""With fewer times, a few ratios to a similar profile are fitted in place of rates by family."""

UNSEEN = {1: 1.0, 2: 0.6}
"""Mean errors of other networks after a fit to one or two times: factors of 1.4 to 2.1, and of 1.3 to 1.7, on a
Raspberry Pi 4 under PyTorch 2 from two profiles, and on an RTX 2080 Ti from a Jetson."""


def scaled_to(
    times: Sequence[StepTime], like: DeviceProfile, *, name: str, source: str, framework: str
) -> tuple[dict[str, Any], list[Compared]]:
    """The profile ``like`` scaled to a few measured times, as plain data, and each time predicted from the others.

    With one or two times nothing is left out, and the bounds are :data:`UNSEEN`.
    """

    def fitted(some: Sequence[StepTime], error: float = 0.5) -> dict[str, Any]:
        base, ratios = fitted_ratios(some, like)
        return derived_profile(base, base, ratios, error)

    held = []
    for left_out in times if len(times) > 2 else ():
        device = validated(DeviceProfile, fitted([time for time in times if time is not left_out]))
        held.append(Compared(left_out, left_out.on(device)))
    error = Errors.of(held).mean_absolute if held else UNSEEN[len(times)]
    data = fitted(times, max(0.1, error))
    highest = max(
        each["fp32_achievable"]["nominal"]
        for each in (data["compute"], *data["compute"]["operator_rates"].values())
        if "fp32_achievable" in each
    )
    data["compute"]["fp32_peak"] = max(value(like.compute.fp32_peak), rounded(1.001 * highest))
    how = f"{like.name}'s, scaled to {len(times)} step times"
    _state(data, like, how, error, name=name, source=source, count=len(times), framework=framework)
    return data, held


SEPARATE = 0.1
"""A family whose figure differs less from the general one is not written."""


def fitted_rates(times: Sequence[StepTime], like: DeviceProfile) -> Rates:
    """The rates that predict these times best; their overheads are near those of the profile ``like``."""
    if len(times) < LEAST_STEPS:
        raise UserError(
            f"expected at least {LEAST_STEPS} measured times for a fit, found {len(times)}; --like PROFILE scales a "
            "similar profile to fewer"
        )
    compute = like.compute
    steps = [(time.operators, time.without_waiting(like).seconds) for time in times]
    overheads = {name: value(getattr(compute, name)) for name in ("operator_overhead", "step_overhead")}
    if like.backend == "cuda":
        peak, bandwidth = value(compute.fp32_peak), value(compute.memory_bandwidth)
        return fit_cuda(steps, peak=peak, memory_bandwidth=bandwidth, **overheads)
    return fit_families(steps, **overheads)


def held_out(times: Sequence[StepTime], like: DeviceProfile) -> list[Compared]:
    """Each time with its prediction by a fit to all other families; empty if the rest is too small for a fit."""
    found = []
    for family in sorted({time.family for time in times}):
        others = [time for time in times if time.family != family]
        if len(others) < LEAST_STEPS:
            return []
        rates = fitted_rates(others, like)
        for time in times:
            if time.family == family:
                step = rates.seconds(time.operators)
                found.append(Compared(time, step + time.waiting(like, step)))
    return found


def fitted_profile(
    rates: Rates, held: Sequence[Compared], like: DeviceProfile, *, name: str, source: str, count: int, framework: str
) -> dict[str, Any]:
    """A valid profile as plain data, or UserError: fitted rates, and all other properties of the profile ``like``.

    The mean absolute error of the held-out predictions gives the bounds. ``count`` is the number of measured times;
    ``framework`` executed the steps.
    """
    error = Errors.of(held).mean_absolute if held else None
    factor = 1 + max(0.1, error if error is not None else 0.5)

    data: dict[str, Any] = like.model_dump(mode="json", exclude_none=True)
    fastest = max(rates.flops_per_second, *(figures[0] for figures in rates.kinds.values()))
    peak = max(value(like.compute.fp32_peak), 1.001 * fastest)
    data["compute"].pop("cpu_quota", None)
    data["compute"] |= {
        "fp32_peak": rounded(peak),
        "fp32_achievable": bounds_around(rates.flops_per_second, factor),
        "memory_bandwidth": bounds_around(rates.bytes_per_second, factor),
        "operator_overhead": _overhead(rates.operator_overhead, like.compute.operator_overhead, factor),
        "step_overhead": _overhead(rates.step_overhead, like.compute.step_overhead, factor),
        "group_overhead": bounds_around(rates.group_overhead, factor),
        "half_rate_pixels": bounds_around(rates.half_rate_pixels, factor),
        "core_speed": rounded(like.core_speed),  # as the reading in these times
        "operator_rates": figures_by_kind(rates, partial(bounds_around, factor=factor), SEPARATE),
        "measured_steps": [],
    }
    how = f"fitted to {count} step times; bounds: the mean error on families that were left out, at least 10 %"
    _state(data, like, how, error, name=name, source=source, count=count, framework=framework)
    return data


def _state(
    data: dict[str, Any], like: DeviceProfile, how: str, error: float | None, *, name: str, framework: str, **facts: Any
) -> None:
    """Write the name, the stack and the evidence of a fit into a profile's data, and check them."""
    data["name"], data["stack"] = name, framework
    evidence = {"kind": "fitted", **facts, "framework": framework, "error": None if error is None else rounded(error)}
    data["provenance"] = with_evidence(data["provenance"], evidence, how) | {
        "sources": [*like.provenance.sources, facts["source"]],
        "date": datetime.date.today().isoformat(),
        "verified": False,
    }
    validated(DeviceProfile, data)


def _overhead(fitted: float, expected: Figure, factor: float) -> dict[str, float]:
    """The bounds are at least as wide as the expected overhead's, which many tables do not improve."""
    bounds = bounds_around(fitted, factor)
    if value(expected) > 0:
        low, high = (rounded(fitted * value(expected, bound) / value(expected)) for bound in ("low", "high"))
        bounds |= {"low": min(bounds["low"], low), "high": max(bounds["high"], high)}
    return bounds


def with_step_times(
    profile: DeviceProfile, times: Sequence[StepTime], *, name: str, source: str, framework: str
) -> dict[str, Any]:
    """A profile as plain data with the measured times of single steps, which replace its roofline's.

    For a step that is in the table several times, nominal is the median, and low and high are the extremes. Other
    measured steps of the profile keep their times.
    """
    measured: dict[str, list[StepTime]] = {}
    for time in times:
        measured.setdefault(time.signature, []).append(time.without_waiting(profile))
    data: dict[str, Any] = profile.model_dump(mode="json", exclude_none=True)
    kept = [row for row in data["compute"]["measured_steps"] if row["signature"] not in measured]
    made = [
        {
            "signature": signature,
            "step": rows[0].text,
            "seconds": _seconds([row.seconds for row in rows]),
            "training_flops": float(sum(each.flops * each.count for each in rows[0].operators)),
            "bytes_touched": float(sum(each.bytes * each.count for each in rows[0].operators)),
            "launches": float(sum(each.count for each in rows[0].operators)),
        }
        for signature, rows in measured.items()
    ]
    data["name"] = name
    data["compute"]["measured_steps"] = [*kept, *made]
    data["provenance"]["sources"] = [*data["provenance"]["sources"], source]
    data["provenance"]["derivation"]["compute.measured_steps"] = "median of the table's times, between least and most"
    data["provenance"].setdefault("evidence", {})["compute.measured_steps"] = {
        "kind": "measured",
        "source": source,
        "count": len(times),
        "framework": framework,
    }
    validated(DeviceProfile, data)
    return data


def _seconds(times: Sequence[float]) -> float | dict[str, float]:
    if len(times) == 1:
        return times[0]
    return {"low": min(times), "nominal": median(times), "high": max(times)}
