"""Fleets of different devices: compute and memory are drawn jointly, distributed as in a benchmark of real phones."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.fleet.figure import scaled
from edgefl.fleet.profile import DeviceProfile
from edgefl.fleet.slower import scaled_figures, scaled_kinds
from edgefl.options import Options

RANK_CORRELATION = 0.84
"""Spearman's rank correlation of CPU score and RAM over the 333 phones of the benchmark."""

# Quantiles 0, 5, …, 100 % of the floating-point CPU score and of RAM in GB over the phones that AI Benchmark listed in
# 2019-20: all 333, and the 220 of 2018-19. We computed these statistics; the list itself is not part of edgefl.
QUANTILES = {
    "all": (
        (105, 218.4, 274.2, 311.4, 392.2, 568, 754.6, 1141.6, 1327, 1445, 1548, 1636.4, 1696.4, 1926, 2035.2, 2154,
         2621.4, 3062.2, 3413.6, 3691.4, 4310),
        (0.5, 1, 1, 1, 2, 3, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7.2, 8, 8, 8, 12),
    ),
    "recent": (
        (343, 604.8, 783.1, 1125.1, 1301.8, 1402, 1454, 1517.7, 1576.8, 1741.1, 1978.5, 2037.5, 2137.4, 2212.7, 2673.8,
         3002.5, 3137.8, 3443.4, 3562.5, 3800.6, 4310),
        (2, 3, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6.6, 8, 8, 8, 8, 8, 12),
    ),
}  # fmt: skip

_SIZES = np.array([0.5, 1, 2, 3, 4, 6, 8, 12])
"""GB of RAM that phones are sold with; drawn values are rounded to the nearest."""


class Sample(Options):
    """How a group's devices differ from its profile."""

    kind: Literal["phones"] = Field(
        default="phones", description="phones: distributed as in AI Benchmark's list of 2019-20."
    )
    models: Literal["all", "recent"] = Field(
        default="recent", description="all: 333 phones of any age; recent: the 220 that were at most two years old."
    )
    devices: int = Field(default=32, ge=1, le=4096, description="Different devices drawn; clients share them evenly.")


def sampled_profiles(profile: DeviceProfile, sample: Sample, draws: np.random.Generator) -> list[DeviceProfile]:
    """Draw ``sample.devices`` devices similar to ``profile``, which represents the median phone.

    Score and RAM are drawn jointly: two normal numbers, correlated so that their ranks have the correlation 0.84 (a
    Gaussian copula), are converted into quantiles. A device with s times the median's score has s times the profile's
    FLOP/s, the square root of s times its memory bandwidth (memory varies less than processors; an assumption), and 1/s
    of its overheads. The part of memory that training may use is the same for all devices.
    """
    scores, sizes = (np.array(numbers, np.float64) for numbers in QUANTILES[sample.models])
    # The ranks of two normal numbers with correlation r have the correlation 6/π asin(r/2).
    linear = 2 * math.sin(math.pi * RANK_CORRELATION / 6)
    first, second = draws.standard_normal((2, sample.devices))
    second = linear * first + math.sqrt(1 - linear**2) * second
    places = np.linspace(0, 1, len(scores))
    drawn = np.interp(_normal_share(first), places, scores)
    memory = np.interp(_normal_share(second), places, sizes)
    memory = _SIZES[np.abs(memory[:, None] - _SIZES).argmin(axis=1)]
    median = float(np.interp(0.5, places, scores))
    digits = len(str(sample.devices - 1))
    return [
        _like(profile, f"{profile.name}-{number:0{digits}d}", float(score) / median, float(gigabytes) * 2**30)
        for number, (score, gigabytes) in enumerate(zip(drawn, memory, strict=True))
    ]


def _normal_share(numbers: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-number / math.sqrt(2)) for number in numbers])


def _like(profile: DeviceProfile, name: str, speed: float, memory: float) -> DeviceProfile:
    factors = {
        "fp32_peak": speed,
        "fp32_achievable": speed,
        "memory_bandwidth": math.sqrt(speed),
        "operator_overhead": 1 / speed,
        "step_overhead": 1 / speed,
    }
    compute = scaled_kinds(scaled_figures(profile.compute, factors), factors)
    compute = compute.model_copy(update={"measured_steps": (), "cpu_quota": None})  # of another device
    training = scaled(profile.memory.training, memory / profile.memory.total)
    size = profile.memory.model_copy(update={"total": memory, "training": training})
    return profile.model_copy(update={"name": name, "compute": compute, "memory": size})
