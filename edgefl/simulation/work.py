"""The duration and cost of a client's local training on its device."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.cost.measure import StepCost
from edgefl.errors import Note
from edgefl.fleet import (
    Bound,
    DeviceProfile,
    FleetAssignment,
    InputPipeline,
    Operator,
    Pace,
    fits,
    measured_step,
    step_seconds,
    training_watts,
    waits_for_launches,
)
from edgefl.methods.parts.common_finish import Passes, Predicted
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.submodels import SubModels
from edgefl.operator_kinds import Backend
from edgefl.record.events import ABSENT
from edgefl.units import at_most

CostOf = Callable[[int, int, int, Backend], StepCost]
"""The cost of one step by (alpha, batch size, capacity level, backend)."""


@dataclass(frozen=True, slots=True)
class Work:
    """One client's local training of one round."""

    device: str
    group: int  # the kind of device; equal group, alpha and samples are equal work
    alpha: int  # blocks received, which determines the hybrid paths of a block-wise method
    samples: int  # n_k, images of the client
    steps: int
    batches: dict[int, int]  # the number of steps of each batch size
    # seconds, flops, joules: of all steps together, undisturbed; joules and watts are of the whole device
    seconds: float
    flops: float
    joules: float
    peak_memory_bytes: float  # of the largest step
    fits: bool
    watts: float
    # hot_seconds, cool_for: seconds of all steps after heat has lowered the rate, and the seconds until it does
    hot_seconds: float
    cool_for: float
    # of a Flower app: the number of this work in costs.json, in place of the number of images
    number: int | None = None
    level: int = 0
    chosen: bool = False  # whether the server chose the local steps, which else follow from the local options

    def pace(self, slowdown: float, heat: float = 0.0) -> Pace:
        """``heat`` are seconds of earlier computing that count towards those after which the rate falls."""
        return Pace(self.seconds * slowdown, self.hot_seconds * slowdown, max(0.0, self.cool_for - heat))


class Plan(NamedTuple):
    """A client's work as the server chose it: ``None`` are the usual ``steps``, and all blocks received."""

    steps: int | None = None
    blocks: int | None = None


def batch_counts(options: LocalOptions, samples: int, steps: int | None = None) -> dict[int, int]:
    """The number of local steps on so many images for a client with ``samples`` images; they sum to its steps.

    Without ``steps`` these are H_k of the options.

    >>> batch_counts(LocalOptions(epochs=2, batch=50), 120)
    {50: 4, 20: 2}
    """
    whole, rest = options.a_pass(samples)
    an_epoch = options.steps_of_an_epoch(samples)
    if not an_epoch:
        return {}
    epochs, left = divmod(options.steps_for(samples) if steps is None else steps, an_epoch)
    smaller = an_epoch - whole
    counts = {options.step_samples: epochs * whole + min(left, whole), rest: epochs * smaller + max(left - whole, 0)}
    return {size: count for size, count in counts.items() if count}


class LocalSeconds(NamedTuple):
    """Seconds of training, of waiting for data, of all cores that read, and of a GPU that waits for launches."""

    training: float
    waiting: float
    reading: float
    launching: float


def local_seconds(
    profile: DeviceProfile,
    costs: Mapping[int, StepCost],
    batches: Mapping[int, int],
    pipeline: InputPipeline | None,
    *,
    bound: Bound = "nominal",
    part: float = 1.0,
) -> LocalSeconds:
    """Local training with these numbers of steps by batch size, or the same ``part`` of each step."""
    steps = {size: part * step_seconds(profile, costs[size].operators, bound=bound) for size in batches}
    training = sum(count * steps[size] for size, count in batches.items())
    idle = {size: part * waits_for_launches(profile, costs[size].operators) for size in batches}
    launching = sum(count * idle[size] for size, count in batches.items())
    if pipeline is None:
        return LocalSeconds(training, 0.0, 0.0, launching)
    waiting = sum(count * pipeline.waiting(profile, steps[size], size) for size, count in batches.items())
    reading = sum(count * pipeline.reading(profile, size) for size, count in batches.items())
    return LocalSeconds(training + waiting, waiting, reading, launching)


@dataclass(eq=False)
class WorkModel:
    """Turns measured step costs into work on devices; equal work is computed once, and reported once to ``on_new``."""

    cost: CostOf
    fleet: FleetAssignment
    samples: NDArray[np.int64]
    options: LocalOptions
    on_new: Callable[[Work], None]
    submodels: SubModels | None = None
    _known: dict[tuple[int, int, int, int | None], Work] = field(default_factory=dict)
    _forwards: dict[tuple[int, int, int, int], Work] = field(default_factory=dict)
    _passes: dict[tuple[int, int, int, int, tuple[int, ...]], tuple[Passes, Passes]] = field(default_factory=dict)

    def of(self, client: int, alpha: int, steps: int | None = None) -> Work:
        """The local training of a client with the last ``alpha`` blocks, in ``steps`` or the usual local steps."""
        samples = int(self.samples[client])
        if steps is not None and steps == self.options.steps_for(samples):
            steps = None
        key = (int(self.fleet.group[client]), alpha, samples, steps)
        work = self._known.get(key)
        if work is None:
            work = self._known[key] = self._chosen(*key)
            self.on_new(work)
        return work

    def forward(self, profile: DeviceProfile, blocks: int, images: int, *, group: int = ABSENT, level: int = 0) -> Work:
        """An evaluation on ``images``: a third of FedAvg's steps, which pass forward and twice backward."""
        if (known := self._forwards.get(key := (group, blocks, images, level))) is not None:
            return known
        batch = self.options.step_samples
        batches = {size: count for size, count in ((batch, images // batch), (images % batch, 1)) if size and count}
        costs = {size: self.cost(0, size, level, profile.backend) for size in batches}
        facts = {"group": group, "level": level, "alpha": blocks, "samples": images, "steps": 0}
        self._forwards[key] = work_on(profile, costs, batches, self.options.input, part=1 / 3, **facts)
        return self._forwards[key]

    def level_of(self, client: int, blocks: int) -> int:
        """The largest capacity level within the device's capacity, its memory and the deadline; else the smallest."""
        return 0 if self.submodels is None else self.of(client, blocks).level

    def _chosen(self, group: int, alpha: int, samples: int, steps: int | None) -> Work:
        """The work at the client's capacity level (:meth:`level_of`), which depends on its device and samples only."""
        submodels = self.submodels
        if submodels is None:
            return self._measure(group, alpha, samples, 0, steps)
        if steps is not None:
            return self._measure(group, alpha, samples, self._chosen(group, alpha, samples, None).level, steps)
        shares = submodels.shares(alpha)
        capacity = self.fleet.capacity[group] if self.fleet.capacity else 1.0
        allowed = [level for level, share in enumerate(shares) if at_most(share, capacity)]
        for level in allowed:
            work = self._measure(group, alpha, samples, level)
            if work.fits and (submodels.deadline is None or at_most(work.seconds, submodels.deadline)):
                return work
        return self._measure(group, alpha, samples, len(shares) - 1)

    def predicted(self, client: int, blocks: int, transfer: float, heat: float) -> Predicted:
        """The participation of a client that trains the whole model of so many blocks, given its other seconds."""
        work, samples = self.of(client, blocks), int(self.samples[client])
        a_pass = batch_counts(self.options, samples, self.options.steps_of_an_epoch(samples))
        hot = work.hot_seconds / work.seconds if work.seconds else 1.0
        passes = self._in_order(work, tuple(a_pass))[0]
        return Predicted(transfer, passes, work.steps, max(0.0, work.cool_for - heat), hot)

    def begun(self, work: Work, steps: float) -> tuple[float, float]:
        """The parts of the seconds and of the FLOPs of this work that are in its first local steps."""
        even = Passes(1.0, 1)  # for steps that cost nothing
        totals = [each if each.first(work.steps) else even for each in self._in_order(work)]
        seconds, flops = (each.first(steps) / each.first(work.steps) for each in totals)
        return seconds, flops

    def reached(self, work: Work, part: float) -> float:
        """The local steps, the last one in part, that are done after this part of its seconds."""
        seconds = None if work.number is not None or part >= 1 else self._in_order(work)[0]
        if seconds is None or not (whole := seconds.first(work.steps)):
            return part * work.steps
        return min(float(work.steps), seconds.reached(part * whole))

    def _measure(self, group: int, alpha: int, samples: int, level: int, steps: int | None = None) -> Work:
        batches = batch_counts(self.options, samples, steps)
        profile, chosen = self.fleet.profiles[group], steps is not None
        costs = {size: self.cost(alpha, size, level, profile.backend) for size in batches}
        facts: dict[str, Any] = {"group": group, "alpha": alpha, "samples": samples, "level": level}
        return work_on(profile, costs, batches, self.options.input, steps=sum(batches.values()), chosen=chosen, **facts)

    def _in_order(self, work: Work, sizes: tuple[int, ...] = ()) -> tuple[Passes, Passes]:
        """Seconds and FLOPs of local steps with batches of these sizes (or the work's), in their order."""
        key = (work.group, work.alpha, work.samples, work.level, sizes or tuple(work.batches))
        if key not in self._passes:
            batch, profile = self.options.step_samples, self.fleet.profiles[work.group]
            costs = {size: self.cost(work.alpha, size, work.level, profile.backend) for size in key[-1]}
            seconds = {size: local_seconds(profile, costs, {size: 1}, self.options.input).training for size in costs}
            flops = {size: cost.training_flops for size, cost in costs.items()}
            whole, rest = self.options.a_pass(work.samples)
            one, other = (Passes(of.get(batch, 0.0), whole, of.get(rest, 0.0), rest > 0) for of in (seconds, flops))
            self._passes[key] = one, other
        return self._passes[key]


def note_roofline(profile: DeviceProfile, steps: Iterable[Iterable[Operator]]) -> None:
    """Say in a note where a device has measured steps, and a step's seconds are not from one of them."""
    if profile.compute.measured_steps and any(measured_step(profile, step) is None for step in steps):
        message = (
            f"'{profile.name}' has measured steps, but none with counted work (training_flops, bytes_touched, "
            "launches) is similar to some steps of this run: the roofline predicts their seconds"
        )
        warnings.warn(message, Note, stacklevel=1)


def work_on(
    profile: DeviceProfile,
    costs: Mapping[int, StepCost],
    batches: dict[int, int],
    pipeline: InputPipeline | None = None,
    *,
    more: int = 0,  # further steps, whose operators are in the others
    waits: float = 0.0,  # seconds that heat does not change
    part: float = 1.0,  # of each step
    **facts: Any,
) -> Work:
    """The work of these steps, by batch size; ``facts`` are the work's further fields."""
    note_roofline(profile, [costs[size].operators for size in batches])
    local, thermal = local_seconds(profile, costs, batches, pipeline, part=part), profile.compute.thermal
    training = max(0.0, local.training + more * profile.rates()[3])
    seconds, hot_seconds = (training / share + waits for share in (1.0, 1.0 if thermal is None else thermal.sustained))
    watts = training_watts(profile, seconds, local.waiting, local.reading, local.launching)
    peak = max((costs[size].peak_memory_bytes for size in batches), default=0.0)
    return Work(
        device=profile.name,
        batches=batches,
        seconds=seconds,
        flops=part * sum(count * costs[size].training_flops for size, count in batches.items()),
        joules=watts * seconds,
        peak_memory_bytes=peak,
        fits=fits(profile, peak),
        watts=watts,
        hot_seconds=hot_seconds,
        cool_for=math.inf if thermal is None else thermal.after,
        **facts,
    )
