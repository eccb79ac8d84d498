"""Build the setup of one run from a scenario: each section gives one part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgefl.cost.law import CostModel
from edgefl.data.federated import FederatedData, shard_sizes
from edgefl.experiment.step_costs import RecordedCosts, StepCosts
from edgefl.fleet import FleetAssignment, assign
from edgefl.methods.build import build_method
from edgefl.methods.codecs.base import Codec
from edgefl.methods.codecs.by_tensor import encoded_sizes
from edgefl.methods.codecs.none import NoCodec
from edgefl.methods.fedbr import uniform_blocks
from edgefl.methods.parts.payload import ModelSizes
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import build_model
from edgefl.network.build import build_topology
from edgefl.network.client_links import ClientLinks
from edgefl.record.costs import StepRow
from edgefl.record.listener import Listener
from edgefl.scenario import Scenario
from edgefl.scenario.methods import ScenarioMethod
from edgefl.scenario.targets import values_of
from edgefl.scheduling.bandwidth.base import BandwidthSpec
from edgefl.scheduling.bandwidth.equal import Equal
from edgefl.scheduling.selection.base import Facts
from edgefl.simulation.cost_specs import ComputeSeconds, PaperCost, SecondsCost
from edgefl.simulation.limits import Limits
from edgefl.simulation.setup import Setup
from edgefl.torch_settings import neutral_torch
from edgefl.training.job import Learner


@dataclass(frozen=True)
class SharedWorld:
    """What all methods of one seed share: the clients' devices, links and shards.

    Attributes:
        seed: the seed.
        fleet: the devices and links.
        samples: n_k ``[clients]``.
        facts: the facts about the clients that a selector may read.
    """

    seed: int
    fleet: FleetAssignment
    samples: NDArray[np.int64]
    facts: Facts


def skeleton(scenario: Scenario) -> BlockModel:
    """Return the scenario's model; images are read only if the data set does not declare their shape."""
    description = scenario.data.describe()
    spec, tokens = scenario.model.spec, description.kind == "tokens"
    return build_model(spec, description.shape, description.classes, scenario.task, tokens=tokens)


def recipe_of(scenario: Scenario, chosen: ScenarioMethod) -> Method:
    """Return the method of one entry, with the scenario's label."""
    return build_method({**chosen.entry, "as": chosen.label}, scenario.training.local, scenario.training.codec)


def step_costs(
    scenario: Scenario, labels: Iterable[str], known: Mapping[str, Sequence[StepRow]] | None = None
) -> dict[str, StepCosts]:
    """Return the step costs of methods by label, according to the scenario's ``cost``; they share measurements.

    Args:
        scenario: the scenario with model, methods and cost.
        labels: the methods.
        known: the methods' steps in ``costs.json``, by label, which are not measured again.
    """
    model, cost = CostModel(skeleton(scenario)), scenario.cost
    recipes = {label: recipe_of(scenario, scenario.method(label)) for label in labels}
    if known is None:
        return {label: StepCosts(model, recipe, cost) for label, recipe in recipes.items()}
    return {label: RecordedCosts(model, recipe, cost, known[label]) for label, recipe in recipes.items()}


def shared_world(scenario: Scenario, seed: int, data: FederatedData | None) -> SharedWorld:
    """Return the fleet and shards of a seed; without ``data``, only the shards' sizes are computed."""
    fleet = assign(scenario.fleet, scenario.data.clients, seed)
    if data is None:
        samples = shard_sizes(scenario.data, seed, scenario.evaluation.split)
        return SharedWorld(seed, fleet, samples, Facts())
    return SharedWorld(seed, fleet, data.sizes, Facts(label_support=data.label_counts > 0))


def compute_seconds(scenario: Scenario, chosen: ScenarioMethod, seed: int) -> ComputeSeconds | None:
    """Return how long the method's local training takes, if the scenario gives it."""
    cost = scenario.cost
    if not isinstance(cost, SecondsCost):
        return None
    key = chosen.label if chosen.label in cost.methods else chosen.name
    return ComputeSeconds(cost, key, seed, scenario.data.clients)


def wire_sizes(scenario: Scenario, model: BlockModel, codec: Codec) -> ModelSizes:
    """Return the bytes of the blocks as sent: their encoded sizes, or S/M of the sum for each in FedBR's cost model."""
    sizes = encoded_sizes(codec, model.layout)
    return replace(sizes, block_bytes=uniform_blocks(sizes)) if isinstance(scenario.cost, PaperCost) else sizes


def client_links_of(scenario: Scenario, world: SharedWorld) -> ClientLinks:
    """Return the capacities of the clients' links of a seed."""
    return ClientLinks(scenario.network.links, [str(name) for name in world.fleet.link_names()], world.seed)


def allocation_of(scenario: Scenario) -> BandwidthSpec | None:
    """Return how the server divides its bandwidth; None for equal shares, which the network computes itself."""
    spec = scenario.training.bandwidth.spec
    return None if type(spec) is Equal else spec


def limits_of(scenario: Scenario) -> Limits:
    """Return the budgets and targets of one run, none reached yet."""
    smoothed = scenario.target_metric.endswith("_ema")
    return Limits(scenario.budgets.limits(), values_of(scenario.targets), scenario.task.measured, smoothed=smoothed)


@neutral_torch()
def setup_of(
    scenario: Scenario,
    chosen: ScenarioMethod,
    world: SharedWorld,
    costs: StepCosts,
    *,
    learner: Learner,
    trains: bool,
    listeners: Sequence[Listener],
    client_links: ClientLinks | None = None,
) -> Setup:
    """Return one run's setup.

    Args:
        scenario: the scenario.
        chosen: the method.
        world: the fleet and data that all methods of the seed share.
        costs: the step costs of the method.
        learner: trains, or replaces training.
        trains: whether the learner's results come from training.
        listeners: follow the run, in this order.
        client_links: the capacities of the clients' links, if they are already built.
    """
    method = costs.method
    model = costs.adapted_model()
    links = [str(name) for name in world.fleet.link_names()]
    levels = range(0 if method.submodels is None else len(method.submodels.levels))
    return Setup(
        label=chosen.label,
        seed=world.seed,
        rounds=scenario.training.rounds,
        cohort=scenario.training.cohort,
        protocol=scenario.protocol,
        method=method,
        scheduler=None if chosen.scheduler is None else chosen.scheduler.start(world.seed, model.depth),
        selector=scenario.training.selection.spec.start(world.seed),
        facts=world.facts,
        sizes=wire_sizes(scenario, model, method.codecs.down),
        sizes_up=wire_sizes(scenario, model, method.codecs.up),
        sizes_plain=wire_sizes(scenario, model, NoCodec()),
        level_sizes=[
            wire_sizes(scenario, costs.part_of(level).model, NoCodec()).of_model_with(model.depth) for level in levels
        ],
        cost=costs.step,
        fleet=world.fleet,
        samples=world.samples,
        topology=build_topology(scenario.network.topology, scenario.network.links, links),
        transport=scenario.network.transport.build(world.seed),
        capacity_changes=client_links or client_links_of(scenario, world),
        learner=learner,
        limits=limits_of(scenario),
        stop=scenario.stop,
        evaluate_every=scenario.evaluation.every,
        trains=trains,
        seconds=compute_seconds(scenario, chosen, world.seed),
        timeouts=scenario.network.transport.timeouts,
        failures=scenario.failures,
        listeners=listeners,
        bandwidth=allocation_of(scenario),
    )
