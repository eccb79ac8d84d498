"""The seconds of a training step on a device: of the operators that it executes, and of waiting for its samples.

Roofline per operator (Williams, Waterman and Patterson, 2009): the time of an operator is its arithmetic at the
achievable FLOP/s or its memory traffic at the memory bandwidth, whichever is longer, plus a fixed overhead for its
launch. So small models are limited by overheads, large dense ones by arithmetic, and ratios of devices depend on the
model. A profile may give the three figures by kind of operator. Some software computes convolutions of small images at
a lower rate, and loops over groups. On CUDA, the host launches operators while earlier ones run.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.fleet.figure import Bound, value
from edgefl.fleet.profile import DeviceProfile, MeasuredStep
from edgefl.options import Options
from edgefl.units import Latency


class Operator(Protocol):
    """An operator that a step executes ``count`` times; it may have a ``kind``, and ``groups`` and ``pixels``."""

    @property
    def flops(self) -> float:
        """Of one execution."""

    @property
    def bytes(self) -> float:
        """Read and written by one execution."""

    @property
    def count(self) -> float:
        """An average if the step draws random widths."""


def step_signature(operators: Iterable[Operator]) -> str:
    """Sixteen hexadecimal digits that identify a step by its operators; their order does not matter.

    >>> from types import SimpleNamespace
    >>> step_signature([SimpleNamespace(flops=2e9, bytes=1e6, count=3)])
    '3975642a8fbfda4f'
    """
    counts: defaultdict[tuple[float, float], float] = defaultdict(int)
    for each in operators:
        counts[float(each.flops), float(each.bytes)] += each.count
    text = repr(sorted((*work, count) for work, count in counts.items() if count))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def step_seconds(profile: DeviceProfile, operators: Iterable[Operator], *, bound: Bound = "nominal") -> float:
    """Seconds of one training step on one device: a measured time (:func:`measured_step`), else by the roofline.

    ``bound`` selects the lowest, nominal or highest seconds that the profile's uncertain figures allow. These bounds
    are never narrower than the error that the profile's evidence states.

    >>> from types import SimpleNamespace
    >>> from edgefl.fleet import load_profile
    >>> matmul = SimpleNamespace(flops=2e9, bytes=1e6, count=3)
    >>> round(step_seconds(load_profile("raspberry-pi-5"), [matmul]), 3)
    0.102
    """
    return float(fleet_step_seconds([profile], operators, bound=bound)[0])


def fleet_step_seconds(
    profiles: Sequence[DeviceProfile], operators: Iterable[Operator], *, bound: Bound = "nominal"
) -> NDArray[np.float64]:
    """:func:`step_seconds` on each of several devices, shape ``[profiles]``."""
    operators = tuple(operators)
    work = np.array([(each.flops, each.bytes, each.count) for each in operators], np.float64).reshape(-1, 3)
    if (work < 0).any() or not np.isfinite(work).all():
        raise ValueError("an operator's flops, bytes and count must be finite and not negative")
    count = work.T[2]
    each = np.empty((len(profiles), len(operators)))
    for row, profile in enumerate(profiles):
        kernels, launches = _parts(profile, operators, work, bound)
        each[row] = kernels + launches
        if profile.backend == "cuda" and (total := float(each[row] @ count)):
            each[row] *= beside(float(kernels @ count), float(launches @ count)) / total
    per_step = np.array([value(profile.compute.step_overhead, bound) for profile in profiles])
    seconds = np.asarray((each * count).sum(axis=1) + per_step, np.float64)
    if bound != "nominal":
        error = np.array([profile.evidence("compute").factor for profile in profiles])
        nominal, low = fleet_step_seconds(profiles, operators), bound == "low"
        seconds = np.minimum(seconds, nominal / error) if low else np.maximum(seconds, nominal * error)
    for row, profile in enumerate(profiles):
        if (measured := measured_step(profile, operators)) is not None:
            step, factor = measured
            factors = dict(zip(("low", "nominal", "high"), sorted((1.0, factor, factor**2)), strict=True))
            seconds[row] = factors[bound] * value(step.seconds, bound)
    return seconds


def _parts(
    profile: DeviceProfile, operators: Sequence[Operator], work: NDArray[np.float64], bound: Bound
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The seconds of each operator itself, and those to launch it; ``work`` is its FLOPs and bytes, and its count."""
    flops, moved, _ = work.T
    kinds = [getattr(operator, "kind", "") for operator in operators]
    own = {kind: profile.rates(bound, kind=kind) for kind in set(kinds)}
    rate, bandwidth, launch, _ = np.array([own[kind] for kind in kinds], np.float64).reshape(-1, 4).T
    half, group = value(profile.compute.half_rate_pixels, bound), value(profile.compute.group_overhead, bound)
    groups = np.array([getattr(operator, "groups", 0) for operator in operators])
    return np.maximum(flops * small_images(operators, half) / rate, moved / bandwidth), launch + group * groups


def waits_for_launches(profile: DeviceProfile, operators: Iterable[Operator]) -> float:
    """Seconds of a step in which a GPU waits for launches by the host; of a measured step, the roofline's share."""
    if profile.backend != "cuda":
        return 0.0
    operators = tuple(operators)
    work = np.array([(each.flops, each.bytes, each.count) for each in operators], np.float64).reshape(-1, 3)
    kernels, launches = (float(part @ work.T[2]) for part in _parts(profile, operators, work, "nominal"))
    seconds = beside(kernels, launches)
    if measured_step(profile, operators) is None:
        return seconds - kernels
    whole = seconds + value(profile.compute.step_overhead)
    return (seconds - kernels) / whole * step_seconds(profile, operators)


OVERLAP = 3.0
"""Between 1, one after the other, and infinity, the longer of both. Of sixteen networks on an RTX 2080 Ti, each left
out of a fit, the worst is missed by 46 % with 1, by 14 % with 3, and by 18 % with infinity."""


def beside(kernels: float, launches: float) -> float:
    """Seconds of a step whose operators take these seconds on the GPU, and those to launch on the host.

    Both go on at the same time, but one waits for the other in parts of a step.

    >>> round(beside(0.04, 0.01), 4), round(beside(0.04, 0.04), 4)
    (0.0402, 0.0504)
    """
    return float((kernels**OVERLAP + launches**OVERLAP) ** (1 / OVERLAP))


SIMILAR = 2.0
"""Steps of one model and nearly one size: each figure of their work differs by at most this factor."""


def measured_step(profile: DeviceProfile, operators: Iterable[Operator]) -> tuple[MeasuredStep, float] | None:
    """The profile's measured step that is this one, or the most similar one, and the factor on its seconds.

    The factor is 1 for the same step. For a similar one it is the quotient of their counted work, in seconds by the
    device's general rates; the lowest seconds assume that the difference costs nothing, the highest that it costs twice
    as much. ``None`` if no step is similar: the roofline predicts this one.
    """
    operators = tuple(operators)
    compute = profile.compute
    if not compute.measured_steps:
        return None
    signature = step_signature(operators)
    if same := [each for each in compute.measured_steps if each.signature == signature]:
        return same[0], 1.0
    counts = np.array([each.count for each in operators], np.float64)
    moved = np.array([(each.flops, each.bytes, 1.0) for each in operators], np.float64).reshape(-1, 3)
    work = counts @ moved
    rate, bandwidth, launch, per_step = profile.rates()
    costs = np.array([1 / rate, 1 / bandwidth, launch])
    found: list[tuple[float, int, float]] = []
    for index, step in enumerate(compute.measured_steps):
        if step.work is not None:
            difference = np.abs(np.log(np.maximum(work, 1) / np.maximum(step.work, 1))).max()
            factor = float((work @ costs + per_step) / (np.array(step.work) @ costs + per_step))
            found.append((float(difference), index, factor))
    difference, index, factor = min(found, default=(math.inf, 0, 1.0))
    return (compute.measured_steps[index], factor) if difference <= math.log(SIMILAR) else None


def step_evidence(profile: DeviceProfile, steps: Iterable[Iterable[Operator]]) -> str:
    """A few words on what confirms the seconds of these steps, such as ``fitted, ±10 %``.

    >>> from edgefl.fleet import load_profile
    >>> step_evidence(load_profile("raspberry-pi-5"), [])
    'derived, ±80 %'
    """
    plain = str(profile.evidence("compute"))
    measured = profile.compute.measured_steps
    if not measured:
        return plain
    found = [measured_step(profile, each) for each in steps]
    factors = sorted(each[1] for each in found if each is not None and each[1] != 1)
    texts = ["measured"] if any(each is not None and each[1] == 1 for each in found) else []
    if factors:
        ends = dict.fromkeys(f"{each:.3g}" for each in (factors[0], factors[-1]))
        texts.append(f"measured on similar steps, times {' to '.join(ends)}")
    if None in found or not found:
        texts.append(f"{plain}, as none of {len(measured)} measured steps is similar and has its work counted")
    return "; ".join(texts)


def small_images(operators: Sequence[Operator], half_rate_pixels: float) -> NDArray[np.float64]:
    """The factor on each operator's arithmetic: of a convolution, by the pixels of its output; else 1."""
    pixels = np.array([getattr(each, "pixels", 0) for each in operators], np.float64)
    return 1 + np.divide(half_rate_pixels, pixels, out=np.zeros_like(pixels), where=pixels > 0)


def fits(profile: DeviceProfile, peak_memory_bytes: float) -> bool:
    """True if the device has enough memory for a job with this peak."""
    return peak_memory_bytes <= value(profile.memory.training)


HANDOVER = 9e-3
"""Seconds to take a batch from a worker on a core of speed 1: 1.4 ms were measured on two x86 cores of speed 6.4."""


class InputPipeline(Options):
    """How a client makes batches: in the training loop (no workers), or in other processes while it trains."""

    seconds: Latency = Field(description="seconds to read and transform a sample and to collate it, on one core")
    workers: int = Field(default=0, ge=0, le=1024, description="processes that make batches; 0: the loop itself does")
    core: float = Field(1.0, gt=0, description="the core_speed of the device of these `seconds`; 1: a Raspberry Pi 4")

    def reading(self, profile: DeviceProfile, batch: int) -> float:
        """The seconds that one core of this device needs for ``batch`` samples."""
        return batch * self.seconds * self.core / profile.core_speed

    def waiting(self, profile: DeviceProfile, step: float, batch: int) -> float:
        """The seconds that a step on ``batch`` samples takes longer than its ``step`` seconds on this device.

        Workers read at the same time, but share the device's cores with training if it trains on them.

        >>> from edgefl.fleet import load_profile
        >>> board, pipeline = load_profile("raspberry-pi-4"), InputPipeline(seconds=1e-3, workers=2)
        >>> [round(pipeline.waiting(board, step, 32), 6) for step in (0.05, 0.01)]
        [0.017, 0.017]
        """
        reading = self.reading(profile, batch)
        if not self.workers:
            return reading
        cores = profile.compute.cores
        shared = 0.0 if cores is None else reading / cores
        return max(shared + HANDOVER / profile.core_speed, reading / self.workers - step)
