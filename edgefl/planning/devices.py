"""Plan the groups of the fleet: the clients that cannot participate, and the cost of a participation for the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import SharedWorld
from edgefl.fleet import DeviceProfile, FleetGroup
from edgefl.fleet.figure import value
from edgefl.planning.figures import DevicePlan, Range
from edgefl.planning.observation import Observation, Spent, work_seconds
from edgefl.record.rounds import RoundRow
from edgefl.scenario import Scenario
from edgefl.simulation.work import WorkModel, batch_counts


def device_plans(
    scenario: Scenario,
    world: SharedWorld,
    costs: StepCosts,
    seen: Observation,
    *,
    blocks: int,
    rows: Sequence[RoundRow],
) -> tuple[DevicePlan, ...]:
    """One plan for each group of the scenario's fleet, in its order, of ``rows`` with the whole model of ``blocks``."""
    devices = [group.sample.devices if group.sample is not None else 1 for group in scenario.fleet]
    entry = np.repeat(np.arange(len(devices)), devices)[world.fleet.group]  # of each client
    return tuple(
        _device_plan(group, np.flatnonzero(entry == index), world, costs, seen, blocks=blocks, rows=rows)
        for index, group in enumerate(scenario.fleet)
    )


def _device_plan(
    group: FleetGroup,
    clients: NDArray[np.int64],
    world: SharedWorld,
    costs: StepCosts,
    seen: Observation,
    *,
    blocks: int,
    rows: Sequence[RoundRow],
) -> DevicePlan:
    profile = group.profile
    if not isinstance(profile, DeviceProfile):
        raise TypeError("expected a scenario's fleet, whose profiles are embedded")
    options = costs.method.local
    model = WorkModel(costs.step, world.fleet, world.samples, options, lambda _: None, costs.method.submodels)
    works = [model.of(int(client), blocks) for client in clients]
    memories = [world.fleet.profile_of(int(client)).memory for client in clients]
    room = [value(memory.training) for memory in memories]
    refused = sum(not work.fits for work in works)
    peak = max((work.peak_memory_bytes for work in works), default=0.0)
    smallest = memories[int(np.argmin(room))] if memories else profile.memory
    training = Range.of(lambda bound: value(smallest.training, bound))
    total = Spent()
    mine = set(clients.tolist())
    for (round, client), spent in seen.spent.items():
        if round <= len(rows) and client in mine:
            total.add(spent)
    count = total.participations
    closing = sum(row.critical_client in mine for row in rows)
    if count:
        seconds = Range.of(lambda bound: total.compute_seconds[bound] / count)
    else:
        typical = int(np.median(world.samples[clients])) if len(clients) else 0
        level = works[0].level if works else 0
        seconds = work_seconds(profile, costs, blocks, batch_counts(options, typical), level)
    return DevicePlan(
        device=profile.name,
        link=group.link,
        evidence=str(profile.evidence("compute")),
        clients=len(clients),
        refused=refused,
        why=_why(peak, training) if refused else None,
        peak_memory_bytes=peak,
        training_memory_bytes=training,
        participations=count,
        compute_seconds=seconds,
        download_seconds=_mean(total.download_seconds, count),
        upload_seconds=_mean(total.upload_seconds, count),
        bytes_down=_mean(total.bytes_down, count),
        bytes_up=_mean(total.bytes_up, count),
        joules=Range.of(lambda bound: total.joules[bound] / count) if count else None,
        closes=closing / len(rows) if rows else 0.0,
        lost={fate: lost / count for fate, lost in sorted(total.lost.items())} if count else {},
    )


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _why(peak: float, training: Range) -> str:
    needs, has = (_megabytes(number) for number in (peak, training.nominal))
    doubt = "" if training.high < peak else f"; its profile's highest figure, {_megabytes(training.high)}, is enough"
    return f"training needs {needs}, the device has {has} for it{doubt}"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:.{max(0, 1 - math.floor(math.log10(number / 1e6 or 1)))}f} MB" if number else "0 MB"
