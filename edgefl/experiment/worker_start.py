"""Worker processes that begin ahead, while data are read and the first model is made."""

from __future__ import annotations

from edgefl.scenario import Scenario
from edgefl.training.choice import choose_engine
from edgefl.training.device import choose_device
from edgefl.training.parallel.worker_pool import PoolBroken, shared_pool
from edgefl.training.processors import cores

ENOUGH_STEPS = 1500
"""Local steps from which on it pays: each takes two milliseconds at least. Other runs see after some seconds."""


def begin_workers(scenario: Scenario, device: str, runs: int) -> None:
    """Have worker processes begin where the parallel engine will have enough for them to do.

    Args:
        scenario: what is trained.
        device: as the command chose it.
        runs: how many runs are to come, methods times seeds.
    """
    training, declared = scenario.training, scenario.data.known()
    images = 0 if declared is None else sum(declared.train) // scenario.data.clients
    steps = runs * training.rounds * training.cohort * training.local.steps_for(images)
    if steps < ENOUGH_STEPS or choose_engine(training.engine.kind, choose_device(device)) != "parallel":
        return
    try:
        shared_pool(cores())
    except PoolBroken:
        return  # the engine will say so
