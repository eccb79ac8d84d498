"""Start worker processes early, while the data are read and the initial model is created."""

from __future__ import annotations

from edgefl.scenario import Scenario
from edgefl.training.choice import choose_engine
from edgefl.training.device import choose_device
from edgefl.training.parallel.worker_pool import PoolBroken, shared_pool
from edgefl.training.processors import cores

ENOUGH_STEPS = 1500
"""Minimum number of local steps for an early start; a step takes at least two milliseconds."""


def begin_workers(scenario: Scenario, device: str, runs: int) -> None:
    """Start worker processes if the parallel engine will have enough work for them.

    Args:
        scenario: the scenario.
        device: the command's choice of device.
        runs: the number of runs to execute, methods times seeds.
    """
    training, declared = scenario.training, scenario.data.known()
    images = 0 if declared is None else sum(declared.train) // scenario.data.clients
    steps = runs * training.rounds * training.cohort * training.local.steps_for(images)
    if steps < ENOUGH_STEPS or choose_engine(training.engine.kind, choose_device(device)) != "parallel":
        return
    try:
        shared_pool(cores())
    except PoolBroken:
        return  # the engine will report it
