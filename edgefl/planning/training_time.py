"""How long this machine trains a scenario: a few local steps of each method are timed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter

from edgefl.data.federated import FederatedData
from edgefl.experiment.wiring import data_of, recipe_of
from edgefl.hardware import DeviceName
from edgefl.methods.recipe import Method
from edgefl.planning.observation import MethodPlan, Plan
from edgefl.scenario import Scenario
from edgefl.simulation.work import batch_counts
from edgefl.torch_settings import neutral_torch
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import choose_device
from edgefl.training.job import JobId, TrainingJob

STEPS = 5
"""Local steps of each client that are timed, next to one step."""


@dataclass(frozen=True)
class TrainingTime:
    """One method's training on ``device`` with an engine, for one seed.

    ``seconds`` are those of ``rounds`` on this machine, each with its evaluation, and ``simulated`` those in the
    simulated world; ``step_seconds`` are those of one step of one client, with the clients of a round side by side.
    """

    label: str
    device: str
    engine: str
    rounds: int
    step_seconds: float
    seconds: float
    simulated: float | None


@neutral_torch()
def training_times(scenario: Scenario, made: Plan, device: DeviceName = "auto") -> list[TrainingTime]:
    """Time a round of one step and a round of :data:`STEPS` steps a client, for each method of a plan.

    The rounds of the run are extrapolated linearly to a client's mean number of steps. Clients get the whole model,
    also those of FedBR. The time of the simulation and of files is not included.
    """
    data = data_of(scenario, made.seed, choose_device(device))
    with TrainingCore.of(data, scenario.model.spec, made.seed, engine=scenario.training.engine) as core:
        return [_training_time(scenario, each, core, data) for each in made.methods]


def _training_time(scenario: Scenario, planned: MethodPlan, core: TrainingCore, data: FederatedData) -> TrainingTime:
    method = recipe_of(scenario, scenario.method(planned.label))
    clients = range(min(data.clients, max(1, round(planned.participants))))
    warm, one, several = _timed_rounds(core, method, planned.label, clients, (1, 1, STEPS))
    step = max(0.0, several - one) / (STEPS - 1)
    steps = fmean(sum(batch_counts(method.local, int(count)).values()) for count in data.sizes)
    rounds = scenario.training.rounds
    if scenario.stop != "rounds":
        rounds = min([rounds, *(budget.rounds for budget in planned.budgets)])
    seconds = warm + rounds * (one + (steps - 1) * step)
    simulated = None if planned.seconds is None else rounds * planned.seconds
    device = data.train.device.type
    return TrainingTime(planned.label, device, core.engine_name, rounds, step / len(clients), seconds, simulated)


def _timed_rounds(
    core: TrainingCore, method: Method, label: str, clients: Sequence[int], steps: Sequence[int]
) -> Iterator[float]:
    """Seconds of one round after another, in which each client makes so many local steps."""
    learner = core.learner(method)
    for version, count in enumerate(steps):
        jobs = [
            TrainingJob(JobId(label, 0, client, version), version, version + 1, core.model.depth, count)
            for client in clients
        ]
        start = perf_counter()
        for job in jobs:
            learner.submit(job)
        learner.aggregate(version, [job.id for job in jobs], version + 1)
        learner.evaluate(version + 1)  # returns numbers, so that an accelerator has finished
        yield perf_counter() - start
