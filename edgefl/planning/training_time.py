"""What local training costs: a round's on devices, without a scenario, and a scenario's time on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from time import perf_counter
from typing import Any

from edgefl.cost.law import CostModel
from edgefl.data.federated import FederatedData
from edgefl.experiment.step_costs import StepCosts
from edgefl.experiment.wiring import data_of, recipe_of
from edgefl.fleet import DeviceProfile, compute_joules, fits, step_evidence, training_watts
from edgefl.fleet.figure import value
from edgefl.hardware import DeviceName
from edgefl.methods.recipe import Method
from edgefl.planning.observation import MethodPlan, Plan, Range, work_seconds
from edgefl.scenario import Scenario
from edgefl.simulation.cost_specs import MeasuredCost
from edgefl.simulation.work import batch_counts, local_seconds
from edgefl.torch_settings import neutral_torch
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import choose_device
from edgefl.training.job import JobId, TrainingJob


@dataclass(frozen=True)
class OnDevice:
    """Local training of one client on a device: seconds and joules of a round, and the memory that it needs and has.

    ``step_seconds`` and ``step_joules`` are those of its largest local step.

    ``evidence`` says what the seconds are worth; the joules are those of the device at full load, and of reading.
    """

    device: str
    stack: str
    steps: int
    fits: bool
    peak_memory_bytes: float
    training_memory_bytes: Range
    compute_seconds: Range
    joules: Range
    step_seconds: Range
    step_joules: Range
    evidence: str

    @property
    def why(self) -> str | None:
        """Why the device cannot train it."""
        needs, has = self.peak_memory_bytes / 1e6, self.training_memory_bytes.nominal / 1e6
        return None if self.fits else f"training needs {needs:,.4g} MB, the device has {has:,.4g} MB for it"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "why": self.why}


def on_devices(model: CostModel, method: Method, images: int, profiles: Sequence[DeviceProfile]) -> list[OnDevice]:
    """A round of ``method`` for a client with so many training images, on each device."""
    costs = StepCosts(model, method, MeasuredCost())
    blocks, batches = costs.model.depth, batch_counts(method.local, images)

    def on(profile: DeviceProfile) -> OnDevice:
        steps = {size: costs.step(blocks, size, 0, profile.backend) for size in batches}
        peak = max(step.peak_memory_bytes for step in steps.values())
        seconds, step = (work_seconds(profile, costs, blocks, each) for each in (batches, {max(batches): 1}))
        nominal = local_seconds(profile, steps, batches, method.local.input)
        share = training_watts(profile, *nominal) / (compute_joules(profile, 1.0) or 1.0)

        def joules(of: Range) -> Range:
            return Range.of(lambda bound: compute_joules(profile, share * getattr(of, bound), bound=bound))

        room = Range.of(lambda bound: value(profile.memory.training, bound))
        costs_of = seconds, joules(seconds), step, joules(step)
        evidence = step_evidence(profile, (each.operators for each in steps.values()))
        count = sum(batches.values())
        return OnDevice(profile.name, profile.software, count, fits(profile, peak), peak, room, *costs_of, evidence)

    return [on(profile) for profile in profiles]


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
