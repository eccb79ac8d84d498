"""What a round's local training costs on devices, asked without a scenario."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgefl.cost.law import CostModel
from edgefl.experiment.step_costs import StepCosts
from edgefl.fleet import DeviceProfile, compute_joules, fits, step_evidence, training_watts
from edgefl.fleet.figure import value
from edgefl.methods.recipe import Method
from edgefl.planning.observation import Range, work_seconds
from edgefl.simulation.cost_specs import MeasuredCost
from edgefl.simulation.work import batch_counts, local_seconds


@dataclass(frozen=True)
class OnDevice:
    """Local training of one client on a device: seconds and joules of a round, and the memory that it needs and has.

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
    evidence: str

    def as_dict(self) -> dict[str, Any]:
        return {name: each._asdict() if isinstance(each, Range) else each for name, each in vars(self).items()}


def on_devices(model: CostModel, method: Method, images: int, profiles: Sequence[DeviceProfile]) -> list[OnDevice]:
    """A round of ``method`` for a client with so many training images, on each device."""
    costs = StepCosts(model, method, MeasuredCost())
    blocks, batches = costs.model.depth, batch_counts(method.local, images)

    def on(profile: DeviceProfile) -> OnDevice:
        steps = {size: costs.step(blocks, size, 0, profile.backend) for size in batches}
        peak = max(step.peak_memory_bytes for step in steps.values())
        seconds = work_seconds(profile, costs, blocks, batches)
        nominal = local_seconds(profile, steps, batches, method.local.input)
        share = training_watts(profile, *nominal) / (compute_joules(profile, 1.0) or 1.0)
        return OnDevice(
            profile.name,
            profile.software,
            sum(batches.values()),
            fits(profile, peak),
            peak,
            Range.of(lambda bound: value(profile.memory.training, bound)),
            seconds,
            Range.of(lambda bound: compute_joules(profile, share * getattr(seconds, bound), bound=bound)),
            step_evidence(profile, (step.operators for step in steps.values())),
        )

    return [on(profile) for profile in profiles]
