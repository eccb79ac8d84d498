"""What the work of an app's clients takes on their devices: operators, optimizer steps and waits become seconds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

from edgefl.cost.measure import StepCost
from edgefl.fleet import FleetAssignment, compute_joules, fits, step_seconds
from edgefl.record.events import ABSENT
from edgefl.simulation.work import Work


class Costs:
    """The costs of all distinct work of a run, numbered in the order of their first occurrence.

    Args:
        before: the number of pieces of work of the method's earlier runs, which have the numbers from 1.
    """

    def __init__(self, before: int = 0) -> None:
        self._before = before
        self._numbers: dict[tuple[object, ...], int] = {}
        self.used: list[StepCost] = []

    def number(self, cost: StepCost, steps: int, waits: float) -> int:
        """The number of this work, with its optimizer steps and the seconds that no operator takes."""
        key = (cost.operators, cost.peak_memory_bytes, steps, waits)
        if key not in self._numbers:
            self._numbers[key] = self._before + len(self.used) + 1
            self.used.append(replace(cost, batch=self._numbers[key]))
        return self._numbers[key]


class OnNew(Protocol):
    """Called once for each distinct work of a kind of device."""

    def __call__(self, work: Work, **other: float) -> None:
        """``other`` are its seconds besides the roofline's, and those of them that it waits, by name."""


class Works:
    """The work of all clients; each distinct work of a kind of device is computed once.

    Args:
        fleet: the device of each client.
        costs: numbers all work.
        on_new: called for each new work.
    """

    def __init__(self, fleet: FleetAssignment, costs: Costs, on_new: OnNew) -> None:
        self._fleet, self._costs, self._on_new = fleet, costs, on_new
        self._known: dict[tuple[int, int], Work] = {}

    def of(self, client: int, cost: StepCost, steps: int, waits: float) -> Work:
        """The work of a client with these operators, optimizer steps and seconds that no operator takes."""
        group, number = int(self._fleet.group[client]), self._costs.number(cost, steps, waits)
        work = self._known.get((group, number))
        if work is None:
            profile = self._fleet.profiles[group]
            # The roofline of all operators together contains the overhead of one step.
            other = waits + (steps - 1) * profile.rates()[3]
            work = self._known[group, number] = self._measured(group, number, cost, steps, other)
            self._on_new(work, other_seconds=other, **({"waits": waits} if waits else {}))
        return work

    def _measured(self, group: int, number: int, cost: StepCost, steps: int, other: float) -> Work:
        profile = self._fleet.profiles[group]
        seconds = max(0.0, step_seconds(profile, cost.operators) + other)
        hot = max(0.0, step_seconds(profile, cost.operators, hot=True) + other)
        thermal = profile.compute.thermal
        return Work(
            device=profile.name,
            group=group,
            alpha=1,
            samples=ABSENT,
            steps=steps,
            batches={number: 1},
            seconds=seconds,
            flops=cost.training_flops,
            joules=compute_joules(profile, seconds),
            peak_memory_bytes=cost.peak_memory_bytes,
            fits=fits(profile, cost.peak_memory_bytes),
            watts=compute_joules(profile, 1.0),
            hot_seconds=hot,
            cool_for=math.inf if thermal is None else thermal.after,
            number=number,
        )
