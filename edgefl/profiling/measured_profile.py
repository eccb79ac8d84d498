"""Make a device profile from a measurement, wherever it was taken."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from edgefl.fleet import DeviceProfile
from edgefl.fleet.figure import bounds_around, rounded
from edgefl.fleet.fitting import Rates, fit_rates, relative_errors
from edgefl.fleet.profile import OperatorRates, Power, figure_paths
from edgefl.fleet.roofline import Operator
from edgefl.profiling.measurement import Measurement
from edgefl.validation import validated

FIGURES = (
    *("fp32_achievable", "memory_bandwidth", "operator_overhead", "step_overhead", "operator_rates"),
    "half_rate_pixels",
)
"""Figures of ``compute`` that give the seconds of a step."""


def with_evidence(provenance: Mapping[str, Any], evidence: Mapping[str, Any], how: str) -> dict[str, Any]:
    """A profile's ``provenance`` in which the speed has other evidence and derivation; that of other sections stays."""
    others = {path: each for path, each in provenance.get("evidence", {}).items() if path.split(".")[0] != "compute"}
    return {
        **provenance,
        "evidence": {**others, "compute": {name: each for name, each in evidence.items() if each is not None}},
        "derivation": {**provenance.get("derivation", {}), **{f"compute.{figure}": how for figure in FIGURES}},
    }


REFERENCE_LAUNCH = 8.4e-6
"""Seconds of launching an operator in place on a core of speed 1; of all kinds, threads and the fit change them least:
1.07 us were measured with one thread and 1.25 to 1.31 us with two."""

DISTURBED = 1.3
"""A case is disturbed if its median time is more than so many times its shortest."""
MANY = 0.25
"""The largest share of disturbed cases, and the largest mean error, without a warning."""


def warning(spreads: Sequence[float], error: float) -> str | None:
    """A measurement's defects and their remedy; ``None`` if there are none.

    ``spreads`` are the ratios of each case's median to its shortest time; ``error`` is the fit's mean relative error.

    >>> print(warning([1.1, 1.2, 1.0, 1.5], 0.1))
    None
    >>> warning([1.1, 1.1], 0.89).partition(":")[0]
    'the profile is not reliable'
    """
    count = sum(spread > DISTURBED for spread in spreads)
    reasons = []
    if count > MANY * len(spreads):
        reasons.append(
            f"{count} of {len(spreads)} cases were disturbed (their median time is more than {DISTURBED:g} times their "
            "shortest)"
        )
    if error > MANY:
        reasons.append(f"the mean error is {error:.0%}")
    if not reasons:
        return None
    return (
        f"the profile is not reliable: {' and '.join(reasons)}; measure again with fewer threads (--threads 1), while "
        "no other program runs, or longer (--seconds)"
    )


GIVEN = "given by the user"


@dataclass(frozen=True)
class Unmeasured:
    """Properties that a measurement does not contain."""

    name: str
    kind: str = "pc"
    # idle_watts, compute_watts: measured with a power meter; None for an estimate
    idle_watts: float | None = None
    compute_watts: float | None = None
    like: DeviceProfile | None = None  # a profile whose power, battery and kind replace the estimates


@dataclass(frozen=True)
class Checked:
    """A timed step that is not fitted, but checks the fit: its shortest time, and its median divided by that."""

    name: str
    operators: Sequence[Operator]
    seconds: float
    spread: float

    def error(self, rates: Rates) -> float:
        return rates.seconds(self.operators) / self.seconds - 1


@dataclass(frozen=True)
class Fit:
    """Fitted rates, their mean relative error on whole steps that were fitted, and on steps that were not, if any."""

    rates: Rates
    misfit: float
    check: float | None = None

    @property
    def error(self) -> float:
        return max(self.misfit, self.check or 0.0)


def fit_of(measurement: Measurement, checked: Sequence[Checked] = ()) -> Fit:
    """The rates that fit a measurement best, and their error on other steps."""
    steps, chains = measurement.observations()
    rates = fit_rates(steps, chains)
    misses = [abs(each.error(rates)) for each in checked]
    return Fit(rates, fmean(map(abs, relative_errors(rates, steps))), fmean(misses) if misses else None)


def profile_data(
    measurement: Measurement, fit: Fit, rest: Unmeasured, *, cpu_quota: float | None = None
) -> dict[str, Any]:
    """A valid profile as plain data, or UserError; ``cpu_quota`` is the part of one processor that was measured."""
    rates, machine = fit.rates, measurement.machine
    # The figures are at least as uncertain as the fit's error on its own steps and on others.
    around = partial(bounds_around, factor=1 + max(0.1, fit.error))
    fitted = (
        f"fitted to the timings of {len(measurement.cases)} cases; bounds: the fit's mean error on whole steps, "
        "fitted or not, at least 10 %"
    )
    in_place = rates.kinds.get("elementwise-in-place")
    total = machine.memory_bytes or (rest.like.memory.total if rest.like else 2**30)
    used = f"{machine.threads} threads" if cpu_quota is None else f"{100 * cpu_quota:g} % of one processor"
    power, battery, sources = _power(rest)
    data = {
        "name": rest.name,
        "kind": rest.like.kind if rest.like else rest.kind,
        "description": f"{machine.processor}, {used}, PyTorch {machine.torch}, as measured",
        "compute": {
            "processor": machine.processor,
            "fp32_peak": rounded(1.001 * max(machine.peak_flops_per_second, rates.flops_per_second)),
            **dict(zip(OperatorRates.model_fields, map(around, rates.general), strict=True)),
            "step_overhead": around(rates.step_overhead),
            "half_rate_pixels": around(rates.half_rate_pixels),
            **({"core_speed": rounded(REFERENCE_LAUNCH / in_place[2])} if in_place else {}),
            "operator_rates": figures_by_kind(rates, around, 0.01),  # what no timing determines stays equal
            # Threads on some of the cores leave the others to the input pipeline.
            **({"cores": machine.threads} if machine.threads >= machine.processors else {}),
            **({} if cpu_quota is None else {"cpu_quota": cpu_quota}),
        },
        "memory": usable_memory(total),
        "power": power,
        **battery,
        "provenance": {
            "sources": [f"edgefl's measuring script on the device itself, {machine.system}", *sources],
            "date": measurement.date.isoformat(),
            "verified": False,
            "evidence": {
                "compute": {
                    "kind": "measured",
                    "source": f"{len(measurement.cases)} cases of edgefl's measuring script on the device itself",
                    "count": len(measurement.cases),
                    "framework": f"PyTorch {machine.torch}",
                    **({} if fit.check is None else {"error": rounded(fit.check)}),
                }
            },
            "derivation": {
                "compute.fp32_peak": "measured: the fastest product of square matrices, or the fitted rate if higher",
                **{f"compute.{figure}": fitted for figure in FIGURES},
                "memory.total": "as the system reports it" if machine.memory_bytes else "not reported by the system",
                "memory.training": "estimated: a part of the total",
                **_power_derivation(rest),
            },
        },
    }
    validated(DeviceProfile, data)
    return data


def figures_by_kind(
    rates: Rates, around: Callable[[float], dict[str, float]], apart: float
) -> dict[str, dict[str, dict[str, float]]]:
    """The bounds of the figures of single kinds that are further from the general ones than this part of them."""
    found = {
        kind: {
            name: around(own)
            for name, own, common in zip(OperatorRates.model_fields, figures, rates.general, strict=True)
            if abs(own / common - 1) > apart
        }
        for kind, figures in sorted(rates.kinds.items())
    }
    return {kind: own for kind, own in found.items() if own}


def unmeasured_device(rest: Unmeasured) -> DeviceProfile:
    """The profile ``rest.like`` with its power replaced where given; without one, wide estimates of everything.

    Step times tell nothing about memory and power, and little about overheads.
    """
    power, battery, sources = _power(rest)
    if rest.like is not None:
        own = {path: how for path, how in _power_derivation(rest).items() if how == GIVEN}
        stated = rest.like.provenance
        provenance = stated.model_copy(update={"derivation": {**stated.derivation, **own}})
        return rest.like.model_copy(update={"power": validated(Power, power), "provenance": provenance})
    data = {
        "name": rest.name,
        "kind": rest.kind,
        "description": "a device known from its step times",
        "compute": {
            "processor": "not given",
            "fp32_peak": 1.0,
            "fp32_achievable": 1.0,
            "memory_bandwidth": 1.0,
            "operator_overhead": {"low": 5e-6, "nominal": 3e-5, "high": 1e-4},
            "step_overhead": {"low": 1e-4, "nominal": 1e-3, "high": 5e-3},
        },
        "memory": usable_memory(2**30),
        "power": power,
        **battery,
        "provenance": {
            "sources": ["memory, power and overheads: estimates, not of this device", *sources],
            "date": datetime.date.today().isoformat(),
            "verified": False,
            "derivation": {
                "compute.operator_overhead": "estimated: between a server core and a small board",
                "compute.step_overhead": "estimated: between a server core and a small board",
                "memory.total": "not given: 1 GiB",
                "memory.training": "estimated: a part of the total",
                **_power_derivation(rest),
            },
        },
    }
    return validated(DeviceProfile, data)


def usable_memory(total: float) -> dict[str, Any]:
    """The memory of a device as data, if only its total is known."""
    return {"total": total, "training": {"low": 0.6 * total, "nominal": 0.8 * total, "high": 0.95 * total}}


def _power(rest: Unmeasured) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The power figures, the battery if known, and their sources."""
    given = {"idle": rest.idle_watts, "compute": rest.compute_watts}
    watts = {key: each for key, each in given.items() if each is not None}
    if rest.like is not None:
        like = rest.like.model_dump(mode="json", exclude_none=True)
        battery = {"battery": like["battery"]} if "battery" in like else {}
        return {**like["power"], **watts}, battery, [f"power: the profile {rest.like.name}"]
    radio = {
        "active": {"low": 0.1, "nominal": 0.3, "high": 0.6},
        "energy_per_megabyte": {"low": 0.002, "nominal": 0.005, "high": 0.02},
    }
    idle, compute = {"low": 5, "nominal": 30, "high": 90}, {"low": 10, "nominal": 65, "high": 250}
    return {"idle": idle, "compute": compute, **watts, "radio": {"down": radio, "up": radio}}, {}, []


def _power_derivation(rest: Unmeasured) -> dict[str, str]:
    given = {"power.idle": rest.idle_watts, "power.compute": rest.compute_watts}
    other = f"that of the profile {rest.like.name}" if rest.like else "estimated: any PC on Gigabit Ethernet"
    radio = [path for path in figure_paths() if path.startswith(("power.radio.down.", "power.radio.up."))]
    return {path: GIVEN if given.get(path) is not None else other for path in (*given, *radio)}
