"""The devices: how fast they compute, what they hold and draw, when they are there."""

from __future__ import annotations

import re
from typing import Any

from .files import FOLDER
from .observation import planned, refused, step_signature_of, world
from .probe import EARLIER, LATER, MORE_JOULES, Changes, Expected, Probe, both, differs, less, more, probes, same, says


def figure(path: str, value: Any) -> Changes:
    """One figure of the first group's profile."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return {"fleet.0.overrides": value}


def both_groups(key: str, value: Any) -> Changes:
    return {f"fleet.{group}.{key}": value for group in (0, 1)}


def table(signature: str, seconds: Any) -> Changes:
    return figure("compute.measured_steps", [{"signature": signature, "step": "a step", "seconds": seconds}])


NIGHTS = both_groups("availability", {"kind": "diurnal", "share": 0.2})
MIDDAYS = both_groups("availability", {"kind": "diurnal", "share": 0.2, "peak": "12 h"})
PRESENT = both_groups("availability", {"kind": "trace", "file": str(FOLDER / "half days.json"), "shift": False})
LARGE = {"data.shape": [1, 32, 32], "model.width": 16}
"""Arithmetic takes longer than launching operators does."""
FULL_BATCHES = {"data.train": 256}
"""Two steps of 16 images each, and no other."""
SIGNATURE = step_signature_of(FULL_BATCHES, batch=16)
CHARGED = both_groups("overrides", {"battery": {"capacity": "0.3 J"}})
RECHARGED = {
    **both_groups("overrides", {"battery": {"capacity": "0.3 J", "charging": "0.1 W"}}), "training.rounds": 8,
}  # fmt: skip
TAIL = figure("power.radio.tail", {"seconds": "9 s", "watts": "1 W"})
FAST = {"fleet.1.profile": "raspberry-pi-5"}
READING = {"training.local.input": {"seconds": "1 ms"}}
PHONES = {"fleet.0.sample": {"kind": "phones"}, **LARGE}
MEASURED = {
    "fleet.0.sample": {"kind": "fedscale", "file": str(FOLDER / "capacity.json"), "family": "small", "devices": 3},
    **LARGE,
}


def uncertain(path: str, low: Any, nominal: Any, high: Any) -> Changes:
    return figure(path, {"low": low, "nominal": nominal, "high": high})


def battery(**options: Any) -> Changes:
    return {f"fleet.{group}.overrides.battery.{name}": value for group in (0, 1) for name, value in options.items()}


def availability(**options: Any) -> Changes:
    return {f"fleet.{group}.availability.{name}": value for group in (0, 1) for name, value in options.items()}


def surer_of(name: str) -> Expected:
    """The plan's range of it is narrower."""
    return lambda before, after: after[name] < before[name]


FIGURES: list[tuple[str, Changes, Any, Any, Expected]] = [
    # A figure of the profile; what it needs to show; a small and a large value; what follows when it rises from the
    # one to the other.
    ("compute.fp32_achievable", LARGE, "0.1 GFLOP/s", "0.4 GFLOP/s", EARLIER),
    ("compute.memory_bandwidth", {}, "1 MB/s", "4 MB/s", EARLIER),
    ("compute.operator_overhead", {}, "1 ms", "10 ms", LATER),
    ("compute.step_overhead", {}, "0.1 s", "1 s", LATER),
    ("compute.half_rate_pixels", LARGE, 0, 1e6, LATER),
    ("compute.core_speed", READING, 0.1, 10, EARLIER),
    ("power.one_core", READING, "3 W", "5 W", MORE_JOULES),
    # In place of those, for one kind of operators.
    *((f"compute.operator_rates.{kind}.{name}", {**base, **figure("compute.fp32_peak", "100 GFLOP/s")}, small, large,
       expected)
      for kind, name, base, small, large, expected in (
          ("matrix-product", "fp32_achievable", LARGE, "0.01 GFLOP/s", "0.04 GFLOP/s", EARLIER),
          ("elementwise", "memory_bandwidth", LARGE, "1 MB/s", "4 MB/s", EARLIER),
          ("elementwise", "operator_overhead", {}, "1 ms", "10 ms", LATER))),
    ("memory.training", {}, "1 kB", "1 MB", less("refused")),
    ("power.idle", {}, "2 W", "2.9 W", both(more("joules"), same("seconds"))),
    ("power.compute", {}, "9 W", "90 W", MORE_JOULES),
    ("power.radio.promotion", {}, "1 J", "5 J", MORE_JOULES),
    *((f"power.radio.{way}.{name}", {}, small, large, MORE_JOULES)
      for way in ("down", "up") for name, small, large in (("active", "3 W", "30 W"),
                                                           ("energy_per_megabyte", "30 J", "300 J"))),
]  # fmt: skip


def figure_probes(path: str, base: Changes, small: Any, large: Any, expected: Expected) -> list[Probe]:
    """The plain figure; and each of low, nominal and high of the first, which all are read alike."""
    field = f"fleet[].profile.{re.sub(r'(?<=operator_rates.)[^.]+', '*', path)}"
    plain = Probe(field, {**base, **figure(path, small)}, figure(path, large), expected, world)
    if path != FIGURES[0][0]:
        return [plain]
    surer = surer_of("compute_seconds")
    return [
        plain,
        Probe(f"{field}.nominal", {**base, **uncertain(path, small, small, large)},
              uncertain(path, small, large, large), expected, world),
        Probe(f"{field}.low", {**base, **uncertain(path, small, large, large)}, uncertain(path, large, large, large),
              surer, planned),
        Probe(f"{field}.high", {**base, **uncertain(path, small, small, large)}, uncertain(path, small, small, small),
              surer, planned),
    ]  # fmt: skip


PROBES: list[Probe] = probes(world, [
    ("fleet[].profile", FAST, {"fleet.0.profile": "raspberry-pi-zero-2w"}, LATER),
    ("fleet[].clients[]", {"fleet.0": {"profile": "raspberry-pi-4", "clients": [0, 1, 2, 3], "link": "l"},
                         "fleet.1": {"profile": "jetson-nano", "clients": [4, 5, 6, 7], "link": "slow"}},
     {"fleet.0.clients": [0], "fleet.1.clients": [1, 2, 3, 4, 5, 6, 7]}, differs),
    ("fleet[].profile.compute.cores",
     {"training.local.input": {"seconds": "1 ms", "workers": 64}, "fleet.1.profile": "raspberry-pi-4"},
     figure("compute.cores", 1), LATER),
    ("fleet[].profile.compute.thermal.cooling",
     {**LARGE, **figure("compute.thermal", {"after": "1 ms", "sustained": 0.01})},
     figure("compute.thermal", {"after": "1 ms", "sustained": 0.01, "cooling": "1 h"}), LATER),
    ("training.local.input.seconds", READING, {"training.local.input.seconds": "9 ms"}, LATER),
    ("training.local.input.workers", READING, {"training.local.input.workers": 4}, EARLIER),
    ("training.local.input.core", READING, {"training.local.input.core": 9}, LATER),
    ("round_overhead.start", {}, {"round_overhead": {"start": "9 s"}}, LATER),
    ("round_overhead.first", {}, {"round_overhead": {"first": "9 s"}}, LATER),
    ("round_overhead.wait", {}, {"round_overhead": {"kind": "flower"}}, LATER),
    ("round_overhead.per_megabyte", {}, {"round_overhead": {"per_megabyte": "99 s"}}, LATER),
    ("fleet[].count", {}, {"fleet.0.count": 7, "fleet.1.count": 1}, differs),
    ("fleet[].share", {"fleet.0": {"profile": "raspberry-pi-4", "share": 0.5, "link": "l"},
                       "fleet.1": {"profile": "jetson-nano", "share": 0.5, "link": "slow"}},
     {"fleet.0.share": 1 - 1e-7, "fleet.1.share": 1e-7}, EARLIER),
    ("fleet[].link", {}, {"fleet.0.link": "slow"}, LATER),
    ("fleet[].dropout", {}, {"fleet.0.dropout": 1.0}, less("aggregated")),
    ("fleet[].overrides", {}, figure("compute.step_overhead", "1 s"), LATER),
    ("fleet[].pace", {}, {"fleet.0.pace": 50}, LATER),
    ("fleet[].mode", {"fleet.0.profile": "jetson-agx-xavier", **FAST}, {"fleet.0.mode": "15W"}, LATER),
    ("fleet[].capacity", {"methods": ["heterofl"]}, {"fleet.0.capacity": 0.5}, less("bytes", "flops")),
    ("fleet[].sample.kind", PHONES, MEASURED, differs),
    ("fleet[].sample.models", PHONES, {"fleet.0.sample.models": "all"}, differs),
    ("fleet[].sample.devices", PHONES, {"fleet.0.sample.devices": 2}, differs),
    ("fleet[].sample.file", MEASURED, {"fleet.0.sample.file": str(FOLDER / "slower.json")}, differs),
    ("fleet[].sample.family", MEASURED, {"fleet.0.sample.family": "wide"}, differs),
    # When they are there.
    ("fleet[].availability<always>.kind", MIDDAYS, both_groups("availability", {"kind": "always"}), EARLIER),
    ("fleet[].availability<diurnal>.share", NIGHTS, availability(share=0.05), LATER),
    ("fleet[].availability<diurnal>.peak", NIGHTS, availability(peak="12 h"), LATER),
    ("fleet[].availability<diurnal>.spread", NIGHTS, availability(spread="12 h"), differs),
    ("fleet[].availability<diurnal>.wander", {**NIGHTS, **availability(spread=0, wander=0, peak="12 h")},
     availability(wander="2 h"), differs),
    ("fleet[].availability<diurnal>.days", {**NIGHTS, **figure("compute.step_overhead", "4 h"), "training.rounds": 8},
     availability(days=1), differs),
    ("fleet[].availability<trace>.file", PRESENT, availability(file=str(FOLDER / "late.json")), LATER),
    ("fleet[].availability<trace>.shift", PRESENT, availability(shift=True), differs),
    # What slows them down.
    ("fleet[].profile.compute.jitter", {}, figure("compute.jitter", 1.0), differs),
    ("fleet[].profile.compute.background_load", {}, figure("compute.background_load", 0.9), LATER),
    ("fleet[].profile.compute.background_load.low", figure("compute.background_load", {"low": 0, "high": 0.9}),
     figure("compute.background_load", {"low": 0.8, "high": 0.9}), LATER),
    ("fleet[].profile.compute.background_load.high",
     {**figure("compute.background_load", {"low": 0, "high": 0.1}), "fleet.1.profile": "raspberry-pi-4"},
     figure("compute.background_load", {"low": 0, "high": 0.9}), LATER),
    ("fleet[].profile.compute.thermal.after",
     {**LARGE, **figure("compute.thermal", {"after": "1 h", "sustained": 0.01})},
     figure("compute.thermal", {"after": "1 ms", "sustained": 0.01}), LATER),
    ("fleet[].profile.compute.thermal.sustained",
     {**LARGE, **figure("compute.thermal", {"after": "1 ms", "sustained": 1})},
     figure("compute.thermal", {"after": "1 ms", "sustained": 0.01}), LATER),
    ("fleet[].profile.compute.measured_steps[].signature", {**FULL_BATCHES, **table("0123456789abcdef", "2 s")},
     table(SIGNATURE, "2 s"), LATER),
    ("fleet[].profile.compute.measured_steps[].seconds", {**FULL_BATCHES, **table(SIGNATURE, "1 s")},
     table(SIGNATURE, "2 s"), LATER),
    # How long their radios and batteries last.
    ("fleet[].profile.power.radio.tail.seconds", figure("power.radio.tail", {"seconds": "1 ms", "watts": "1 W"}), TAIL,
     MORE_JOULES),
    ("fleet[].profile.power.radio.tail.watts", TAIL, figure("power.radio.tail", {"seconds": "9 s", "watts": "2 W"}),
     MORE_JOULES),
    ("fleet[].profile.battery.capacity", CHARGED, battery(capacity="900 kJ"), more("aggregated")),
    ("fleet[].profile.battery.start", {**CHARGED, **battery(capacity="3 J")}, battery(start=0.1), less("aggregated")),
    ("fleet[].profile.battery.start.low", {**CHARGED, **battery(capacity="3 J", start={"low": 0, "high": 1})},
     battery(start={"low": 1, "high": 1}), more("aggregated")),
    ("fleet[].profile.battery.start.high", {**CHARGED, **battery(capacity="3 J", start={"low": 0, "high": 0})},
     battery(start={"low": 0, "high": 1}), more("aggregated")),
    ("fleet[].profile.battery.charging", RECHARGED, battery(charging="9 W"), EARLIER),
    ("fleet[].profile.battery.resume", RECHARGED, battery(resume=1.0), LATER),
]) + probes(refused, [
    ("fleet[].profile.compute.fp32_peak", figure("compute.fp32_peak", "40 GFLOP/s"),
     figure("compute.fp32_peak", "1 GFLOP/s"),
     says("expected compute.fp32_achievable to be at most compute.fp32_peak")),
    ("fleet[].profile.compute.fp32_peak.high", uncertain("compute.fp32_peak", 1e9, 1e9, 4e10),
     uncertain("compute.fp32_peak", 1e9, 1e9, 1e9),
     says("expected compute.fp32_achievable to be at most compute.fp32_peak")),
    ("fleet[].profile.memory.total", {}, figure("memory.total", "1 GB"),
     says("expected memory.training to be at most memory.total")),
]) + [probe for row in FIGURES for probe in figure_probes(*row)]  # fmt: skip
