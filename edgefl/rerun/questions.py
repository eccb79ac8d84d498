"""The questions: which part of the world is scaled, and how a run's setup changes with the factor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile, step_signature
from edgefl.fleet.battery import Battery
from edgefl.fleet.profile import scaled_figures, slower
from edgefl.methods.parts.payload import ModelSizes
from edgefl.network.capacities.base import DIRECTIONS
from edgefl.network.client_links import scaled_links
from edgefl.network.specs import Rates
from edgefl.record.costs import StepKey
from edgefl.scenario import Scenario
from edgefl.simulation.setup import Setup
from edgefl.simulation.work import CostOf

Name = str
"""``bandwidth``, ``devices``, ``battery`` or ``model``, or the path of capacities in a scenario."""

BATTERY_JOULES = 3600.0
"""The capacity of a device's battery at factor 1 if no device of the fleet has one: 1 Wh, full and never charged."""


@dataclass(frozen=True)
class Question:
    """A part of the world that is scaled by a factor; the answer is searched between ``easiest`` and ``hardest``.

    ``retimes``: another factor gives other times, so that decisions that read a time could change.
    """

    name: Name
    easiest: float
    hardest: float
    retimes: bool = True


QUESTIONS = (
    Question("bandwidth", easiest=1e3, hardest=1e-3),
    Question("devices", easiest=1e-3, hardest=1e3),
    Question("battery", easiest=1e6, hardest=1e-6, retimes=False),
    Question("model", easiest=1e-3, hardest=1e3),
)
"""The capacity of every link; the seconds of local training; the capacity of batteries; the model's bytes and FLOPs."""


def question_about(path: str, scenario: Scenario) -> Question:
    """The question about the capacities at a path of the scenario; UserError if there are none."""
    varied(scenario, path, 1.0)
    return Question(path, easiest=1e3, hardest=1e-3)


def varied(scenario: Scenario, path: str, factor: float) -> Scenario:
    """The scenario with the capacities at ``path``, such as ``network.links.lte.up``, multiplied by a factor."""
    network = scenario.network
    links, server = network.links, getattr(network.topology, "server", None)
    match path.split("."):
        case ["network", "links", name, *way] if name in links and (not way or way in [["down"], ["up"]]):
            changed = scaled_links({name: links[name]}, factor)[name]
            own = {way[0]: getattr(changed, way[0])} if way else {"down": changed.down, "up": changed.up}
            network = network.model_copy(update={"links": {**links, name: links[name].model_copy(update=own)}})
        case ["network", "topology", "server", *way] if isinstance(server, Rates) and way in [[], ["down"], ["up"]]:
            own = {each: getattr(server, each) * factor for each in way or DIRECTIONS}
            topology = network.topology.model_copy(update={"server": server.model_copy(update=own)})
            network = network.model_copy(update={"topology": topology})
        case _:
            known = [f"network.links.{name}" for name in links] + ["network.topology.server"] * isinstance(
                server, Rates
            )
            raise UserError(
                f"cannot vary '{path}'; expected one of {', '.join(known)}, or .down or .up of it", file="--vary"
            )
    return scenario.model_copy(update={"network": network})


def with_slower_devices(setup: Setup, factor: float) -> Setup:
    """Multiply the seconds of local training by a factor on every device."""
    seconds = None if setup.seconds is None else setup.seconds.times(factor)
    return replace(_with_profiles(setup, lambda profile: slower(profile, factor)), seconds=seconds)


def with_batteries(setup: Setup, factor: float) -> Setup:
    """Multiply the capacity of every battery; if no device has one, every device gets one of 1 Wh times the factor."""
    capacity = battery_joules(setup.fleet.profiles)

    def charged(profile: DeviceProfile) -> DeviceProfile:
        battery = profile.battery
        if battery is None and capacity is None:
            battery = Battery(capacity=BATTERY_JOULES)
        if battery is not None:
            battery = battery.model_copy(update={"capacity": battery.capacity * factor})
        return profile.model_copy(update={"battery": battery})

    return _with_profiles(setup, charged)


def battery_joules(profiles: Sequence[DeviceProfile]) -> float | None:
    """The capacity of the smallest battery of a fleet; ``None`` if there is none."""
    return min((each.battery.capacity for each in profiles if each.battery is not None), default=None)


def with_larger_model(setup: Setup, factor: float, steps: Mapping[StepKey, StepCost], cost: CostOf) -> Setup:
    """Multiply the model's bytes, and each step's FLOPs and bytes of memory, by a factor.

    The number of operators stays the same, and so do their overheads. Measured times of the run's ``steps``,
    and those with counted work, grow by the factor. ``cost`` is that of any step, also of one that the run did not
    execute.
    """
    grown = {key: larger_step(step, factor) for key, step in steps.items()}
    renamed = {step_signature(step.operators): step_signature(grown[key].operators) for key, step in steps.items()}

    def larger(profile: DeviceProfile) -> DeviceProfile:
        times = tuple(
            scaled_figures(each, dict.fromkeys(("seconds", "training_flops", "bytes_touched"), factor)).model_copy(
                update={"signature": renamed.get(each.signature, each.signature)}
            )
            for each in profile.compute.measured_steps
            if each.signature in renamed or each.work is not None
        )
        return profile.model_copy(update={"compute": profile.compute.model_copy(update={"measured_steps": times})})

    return replace(
        _with_profiles(setup, larger),
        sizes=_sizes(setup.sizes, factor),
        sizes_up=None if setup.sizes_up is None else _sizes(setup.sizes_up, factor),
        sizes_plain=None if setup.sizes_plain is None else _sizes(setup.sizes_plain, factor),
        cost=lambda *key: grown.get(key) or larger_step(cost(*key), factor),
        seconds=None if setup.seconds is None else setup.seconds.times(factor),
    )


def _sizes(sizes: ModelSizes, factor: float) -> ModelSizes:
    return replace(sizes, block_bytes=tuple(round(each * factor) for each in sizes.block_bytes))


def larger_step(step: StepCost, factor: float) -> StepCost:
    """A step with ``factor`` times the FLOPs and bytes in the same number of operators."""
    return replace(
        step,
        operators=tuple(replace(each, flops=each.flops * factor, bytes=each.bytes * factor) for each in step.operators),
        training_flops=step.training_flops * factor,
        peak_memory_bytes=round(step.peak_memory_bytes * factor),
    )


def _with_profiles(setup: Setup, change: Callable[[DeviceProfile], DeviceProfile]) -> Setup:
    profiles = tuple(change(profile) for profile in setup.fleet.profiles)
    return replace(setup, fleet=replace(setup.fleet, profiles=profiles))
