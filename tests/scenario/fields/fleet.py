"""The devices: how fast they compute, what they hold and draw, when they are there."""

from __future__ import annotations

from typing import Any

from .observation import planned, refused, world
from .probe import EARLIER, LATER, MORE_JOULES, Changes, Probe, differs, less, probes, says


def figure(path: str, value: Any) -> Changes:
    """One figure of the first group's profile."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return {"fleet.0.overrides": value}


def both_groups(key: str, value: Any) -> Changes:
    return {f"fleet.{group}.{key}": value for group in (0, 1)}


NIGHTS = both_groups("availability", {"kind": "diurnal", "share": 0.2})
LARGE = {"data.shape": [1, 32, 32], "model.width": 16}
"""Arithmetic takes longer than launching operators does."""
TAIL = figure("power.radio.tail", {"seconds": "9 s", "watts": "1 W"})
FAST = {"fleet.1.profile": "raspberry-pi-5"}
READING = {"training.local.input": {"seconds": "1 ms"}}


def uncertain(path: str, low: Any, nominal: Any, high: Any) -> Changes:
    return figure(path, {"low": low, "nominal": nominal, "high": high})


def availability(**options: Any) -> Changes:
    return {f"fleet.{group}.availability.{name}": value for group in (0, 1) for name, value in options.items()}


RATE, ACHIEVABLE = "compute.fp32_achievable", "fleet[].profile.compute.fp32_achievable"


def surer(before: Any, after: Any) -> bool:
    """The plan's range of seconds is narrower."""
    return bool(after < before)


PROBES: list[Probe] = probes(world, [
    (ACHIEVABLE, {**LARGE, **figure(RATE, "0.1 GFLOP/s")}, figure(RATE, "0.4 GFLOP/s"), EARLIER),
    (f"{ACHIEVABLE}.nominal", {**LARGE, **uncertain(RATE, 1e8, 1e8, 4e8)}, uncertain(RATE, 1e8, 4e8, 4e8), EARLIER),
    ("fleet[].profile.compute.half_rate_pixels", {**LARGE, **figure("compute.half_rate_pixels", 0)},
     figure("compute.half_rate_pixels", 1e6), LATER),
    ("fleet[].profile.compute.core_speed", {**READING, **figure("compute.core_speed", 0.1)},
     figure("compute.core_speed", 10), EARLIER),
    ("fleet[].profile.power.one_core", {**READING, **figure("power.one_core", "3 W")},
     figure("power.one_core", "5 W"), MORE_JOULES),
    ("fleet[].profile.memory.training", figure("memory.training", "1 kB"), figure("memory.training", "1 MB"),
     less("refused")),
    ("fleet[].profile.power.radio.promotion", figure("power.radio.promotion", "1 J"),
     figure("power.radio.promotion", "5 J"), MORE_JOULES),
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
    ("fleet[].count", {}, {"fleet.0.count": 7, "fleet.1.count": 1}, differs),
    ("fleet[].share", {"fleet.0": {"profile": "raspberry-pi-4", "share": 0.5, "link": "l"},
                       "fleet.1": {"profile": "jetson-nano", "share": 0.5, "link": "slow"}},
     {"fleet.0.share": 1 - 1e-7, "fleet.1.share": 1e-7}, EARLIER),
    ("fleet[].link", {}, {"fleet.0.link": "slow"}, LATER),
    ("fleet[].overrides", {}, figure("compute.step_overhead", "1 s"), LATER),
    ("fleet[].pace", {}, {"fleet.0.pace": 50}, LATER),
    ("fleet[].mode", {"fleet.0.profile": "jetson-agx-xavier", **FAST}, {"fleet.0.mode": "15W"}, LATER),
    ("fleet[].capacity", {"methods": ["heterofl"]}, {"fleet.0.capacity": 0.5}, less("bytes", "flops")),
    # When they are there.
    ("fleet[].availability<diurnal>.spread", NIGHTS, availability(spread="12 h"), differs),
    ("fleet[].availability<diurnal>.wander", {**NIGHTS, **availability(spread=0, wander=0, peak="12 h")},
     availability(wander="2 h"), differs),
    ("fleet[].availability<diurnal>.days", {**NIGHTS, **figure("compute.step_overhead", "4 h"), "training.rounds": 8},
     availability(days=1), differs),
    # How long their radios go on.
    ("fleet[].profile.power.radio.tail.seconds", figure("power.radio.tail", {"seconds": "1 ms", "watts": "1 W"}), TAIL,
     MORE_JOULES),
    ("fleet[].profile.power.radio.tail.watts", TAIL, figure("power.radio.tail", {"seconds": "9 s", "watts": "2 W"}),
     MORE_JOULES),
]) + probes(refused, [
    ("fleet[].profile.compute.fp32_peak", figure("compute.fp32_peak", "40 GFLOP/s"),
     figure("compute.fp32_peak", "1 GFLOP/s"),
     says("expected compute.fp32_achievable to be at most compute.fp32_peak")),
    ("fleet[].profile.compute.fp32_peak.high", uncertain("compute.fp32_peak", 1e9, 1e9, 4e10),
     uncertain("compute.fp32_peak", 1e9, 1e9, 1e9),
     says("expected compute.fp32_achievable to be at most compute.fp32_peak")),
    ("fleet[].profile.memory.total", {}, figure("memory.total", "1 GB"),
     says("expected memory.training to be at most memory.total")),
]) + probes(planned, [
    # Low and high are read alike for every figure.
    (f"{ACHIEVABLE}.low", {**LARGE, **uncertain(RATE, 1e8, 4e8, 4e8)}, uncertain(RATE, 4e8, 4e8, 4e8), surer),
    (f"{ACHIEVABLE}.high", {**LARGE, **uncertain(RATE, 1e8, 1e8, 4e8)}, uncertain(RATE, 1e8, 1e8, 1e8), surer),
])  # fmt: skip
