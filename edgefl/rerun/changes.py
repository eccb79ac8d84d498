"""Changes of the world of a finished run: its links, devices, batteries and model. Its training stays the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from edgefl.cost.measure import StepCost
from edgefl.errors import UserError
from edgefl.experiment.recording import Recording
from edgefl.experiment.step_costs import scaled_step
from edgefl.fleet import DeviceProfile, step_signature
from edgefl.fleet.battery import Battery
from edgefl.fleet.changed_profile import RATES, scaled_figures, slower
from edgefl.fleet.figure import Bound, Estimate, opposite, value
from edgefl.methods.parts.payload import ModelSizes
from edgefl.network.capacities.base import DIRECTIONS
from edgefl.network.client_links import scaled_links
from edgefl.network.specs import Rates
from edgefl.network.topology import scale_topology
from edgefl.record.costs import StepKey
from edgefl.scenario import Scenario
from edgefl.scheduling.blocks.base import BlockForecast, BlockScheduler
from edgefl.scheduling.selection.base import Facts, Selector
from edgefl.simulation.setup import Setup

ProfilePart = TypeVar("ProfilePart", bound=BaseModel)

BATTERY = Battery(capacity="1 Wh")
"""The battery of every device at factor 1 if no device of the fleet has one: full, and never charged."""


def with_bandwidth(setup: Setup, factor: float) -> Setup:
    """Multiply the capacity of every link by a factor. The given setup cannot be used any more."""
    assert not isinstance(setup.topology, nx.DiGraph)
    scale_topology(setup.topology, factor)
    return replace(setup, capacity_changes=setup.capacity_changes.scaled(factor))


def with_draw(setup: Setup, draw: int) -> Setup:
    """Draw the shares in queues (``queue: fifo``) again; 0 is the run's own draw."""
    if (queue := setup.transport.queue) is None:
        return setup
    return replace(setup, transport=replace(setup.transport, queue=replace(queue, draw=draw)))


def varied(scenario: Scenario, path: str, factor: float) -> Scenario:
    """The scenario with the capacities at ``path``, such as ``network.links.lte.up``, multiplied by a factor."""
    network = scenario.network
    links, server = network.links, getattr(network.topology, "server", None)
    match path.split("."):
        case ["network", "links", name, *way] if name in links and (not way or way in [["down"], ["up"]]):
            changed = scaled_links({name: links[name]}, factor)[name]
            own = {each: getattr(changed, each) for each in way or DIRECTIONS}
            network = network.model_copy(update={"links": {**links, name: links[name].model_copy(update=own)}})
        case ["network", "topology", "server", *way] if isinstance(server, Rates) and way in [[], ["down"], ["up"]]:
            own = {each: getattr(server, each) * factor for each in way or DIRECTIONS}
            topology = network.topology.model_copy(update={"server": server.model_copy(update=own)})
            network = network.model_copy(update={"topology": topology})
        case _:
            known = [f"network.links.{name}" for name in links]
            known += ["network.topology.server"] if isinstance(server, Rates) else []
            message = f"cannot vary '{path}'; expected one of {', '.join(known)}, or .down or .up of it"
            raise UserError(message, file="--vary")
    return scenario.model_copy(update={"network": network})


def with_slower_devices(setup: Setup, factor: float) -> Setup:
    """Multiply the seconds of local training by a factor on every device."""
    seconds = None if setup.seconds is None else setup.seconds.times(factor)
    return replace(_with_profiles(setup, lambda profile: slower(profile, factor)), seconds=seconds)


def with_bounds(setup: Setup, bound: Bound) -> Setup:
    """Every device at one bound of its profile's figures; see :func:`at_bound`."""
    return _with_profiles(setup, partial(at_bound, bound=bound))


def with_batteries(setup: Setup, factor: float) -> Setup:
    """Multiply the capacity of every battery; if no device has one, every device gets one of 1 Wh times the factor."""
    capacity = battery_joules(setup)

    def charged(profile: DeviceProfile) -> DeviceProfile:
        battery = profile.battery
        if battery is None and capacity is None:
            battery = BATTERY
        if battery is not None:
            battery = battery.model_copy(update={"capacity": battery.capacity * factor})
        return profile.model_copy(update={"battery": battery})

    return _with_profiles(setup, charged)


def battery_joules(setup: Setup) -> float | None:
    """The capacity of the smallest battery of a fleet; ``None`` if there is none."""
    return min((each.battery.capacity for each in setup.fleet.profiles if each.battery is not None), default=None)


def with_larger_model(setup: Setup, factor: float, *, steps: Mapping[StepKey, StepCost]) -> Setup:
    """Multiply the model's bytes, and each step's FLOPs and bytes of memory, by a factor.

    The number of operators stays the same, and so do their overheads. Measured times of the run's ``steps``,
    and those with counted work, grow by the factor.
    """
    grown = {key: larger_step(step, factor) for key, step in steps.items()}
    renamed = {step_signature(step.operators): step_signature(grown[key].operators) for key, step in steps.items()}
    cost = setup.cost

    def larger(profile: DeviceProfile) -> DeviceProfile:
        times = tuple(
            scaled_figures(each, dict.fromkeys(("seconds", "training_flops", "bytes_touched"), factor)).model_copy(
                update={"signature": renamed.get(each.signature, each.signature)}
            )
            for each in profile.compute.measured_steps
            if each.signature in renamed or each.work is not None
        )
        return profile.model_copy(update={"compute": profile.compute.model_copy(update={"measured_steps": times})})

    def sizes(own: ModelSizes) -> ModelSizes:
        return replace(own, block_bytes=tuple(round(each * factor) for each in own.block_bytes))

    return replace(
        _with_profiles(setup, larger),
        sizes=sizes(setup.sizes),
        sizes_up=setup.sizes_up and sizes(setup.sizes_up),
        sizes_plain=setup.sizes_plain and sizes(setup.sizes_plain),
        level_sizes=[sizes(each) for each in setup.level_sizes],
        cost=lambda *key: grown.get(key) or larger_step(cost(*key), factor),
        seconds=setup.seconds and setup.seconds.times(factor),
    )


def larger_step(step: StepCost, factor: float) -> StepCost:
    """A :func:`~edgefl.experiment.step_costs.scaled_step` with ``factor`` times the peak memory."""
    return replace(scaled_step(step, factor), peak_memory_bytes=round(step.peak_memory_bytes * factor))


def _with_profiles(setup: Setup, change: Callable[[DeviceProfile], DeviceProfile]) -> Setup:
    profiles = tuple(change(profile) for profile in setup.fleet.profiles)
    return replace(setup, fleet=replace(setup.fleet, profiles=profiles))


def at_bound(profile: DeviceProfile, bound: Bound) -> DeviceProfile:
    """Return the profile without uncertainty: its speeds, overheads and powers give this bound of seconds and joules.

    Memory and battery are unchanged, because they determine which clients can participate.

    >>> from edgefl.fleet import load_profile
    >>> profile = load_profile("raspberry-pi-4")
    >>> [value(at_bound(profile, bound).compute.fp32_achievable) / 1e9 for bound in ("low", "nominal", "high")]
    [36.29, 20.16, 11.2]
    """
    return profile.model_copy(update={name: _fixed(getattr(profile, name), bound) for name in ("compute", "power")})


def _fixed(part: ProfilePart, bound: Bound) -> ProfilePart:
    changes: dict[str, Any] = {}
    for name in type(part).model_fields:
        found = getattr(part, name)
        if isinstance(found, Estimate):
            changes[name] = value(found, opposite(bound) if name in RATES else bound)
        elif isinstance(found, BaseModel):
            changes[name] = _fixed(found, bound)
        elif isinstance(found, tuple):
            changes[name] = tuple(_fixed(each, bound) if isinstance(each, BaseModel) else each for each in found)
    return part.model_copy(update=changes)


def with_held_decisions(setup: Setup, recording: Recording) -> Setup:
    """Decide as in the finished run what was decided there by time."""
    timed = {what for _, what, _ in recording.timed}
    if "blocks" in timed:
        setup = replace(setup, scheduler=HeldScheduler(recording.alphas))
    return replace(setup, selector=HeldSelector(recording.cohorts)) if "selection" in timed else setup


class HeldSelector(Selector):
    """Selects the clients that the finished run selected, by round; for other rounds, the first clients."""

    def __init__(self, cohorts: Mapping[int, Sequence[int]]) -> None:
        self._cohorts = cohorts

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        held = self._cohorts.get(round)
        return available[:cohort] if held is None else np.array(held, np.int64)


class HeldScheduler(BlockScheduler):
    """Sends each client as many blocks as in the finished run, by round; for other rounds, one block each."""

    def __init__(self, alphas: Mapping[int, Mapping[int, int]]) -> None:
        self._alphas = alphas

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast | None = None) -> dict[int, int]:
        held = self._alphas.get(round, {})
        return {client: held.get(client, 1) for client in cohort}
