"""What a round's local training costs on devices, asked without a scenario."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
