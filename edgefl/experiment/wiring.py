"""Build the setup of one run from a scenario: each section gives one part."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from edgefl.cost.law import CostModel
from edgefl.data.attackers import Attackers
from edgefl.data.federated import FederatedData, evaluation_sizes, load_federated, samples_to_evaluate, shard_sizes
from edgefl.experiment.step_costs import StepCosts
from edgefl.fleet import FleetAssignment, FleetGroup, assign
from edgefl.fleet.prices import Bills, FleetPrices, Prices
from edgefl.methods.build import build_method
from edgefl.methods.codecs.base import Codec, NoCodec
from edgefl.methods.codecs.by_tensor import encoded_sizes
from edgefl.methods.parts.payload import ModelSizes
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import build_model
from edgefl.network.client_links import ClientLinks
from edgefl.network.specs import NetworkSpec
from edgefl.privacy.ledger import Exposure, Ledger
from edgefl.privacy.spec import Privacy
from edgefl.privacy.training import PrivateTraining
from edgefl.record.costs import StepRow
from edgefl.record.events import Listener
from edgefl.scenario import Scenario
from edgefl.scenario.components import errors_at
from edgefl.scenario.methods import ScenarioMethod
from edgefl.scenario.sections import TrainingSpec, values_of
from edgefl.scheduling.bandwidth.equal import Equal
from edgefl.scheduling.selection.base import Facts
from edgefl.simulation.accounts import Limits
from edgefl.simulation.cost_specs import ComputeSeconds, PaperCost, RoundOverhead, SecondsCost
from edgefl.simulation.presence import timed
from edgefl.simulation.protocols.synchronous import SynchronousSpec
from edgefl.simulation.setup import RoundEvaluation, Setup, connected
from edgefl.simulation.work import CostOf
from edgefl.torch_settings import neutral_torch
from edgefl.training.job import Learner


@dataclass(frozen=True)
class SharedWorld:
    """The clients' devices, links and shards, and facts about them, which all methods of one seed share."""

    seed: int
    fleet: FleetAssignment
    links: ClientLinks
    samples: NDArray[np.int64]
    facts: Facts


def skeleton(scenario: Scenario, *, numbers: bool = True) -> BlockModel:
    """The scenario's model; without ``numbers``, as costs need none, large tensors have shapes only."""
    with errors_at("data"):
        description = scenario.data.describe()
    spec, tokens = scenario.model.spec, description.kind == "tokens"
    return build_model(spec, description.shape, description.classes, scenario.task, tokens=tokens, numbers=numbers)


def recipe_of(scenario: Scenario, chosen: ScenarioMethod) -> Method:
    """Return the method of one entry, with the scenario's label."""
    entry, training = {**chosen.entry, "as": chosen.label}, scenario.training
    return private(scenario, build_method(entry, training.local, training.codec, training.rounds))


def private(scenario: Scenario, method: Method) -> Method:
    """Return a method with what the scenario's section ``privacy`` changes in it."""
    spec, training, local = scenario.privacy, scenario.training, method.local
    if (spec.secure_aggregation, spec.dp) == (None, None) or method.objective.server is not None:
        return method
    exposure = None
    if (dp := spec.dp) is not None:
        sizes: Sequence[int] = ()
        if dp.epsilon is not None and not dp.of_clients:
            shards = [shard_sizes(scenario.data, seed, scenario.evaluation.split) for seed in scenario.seeds]
            sizes = np.min(shards, axis=0).tolist()
        exposure = exposure_of(scenario, method, sizes)
        local = local.drawing() if not dp.of_clients and dp.sampling == "poisson" else local
    cohort, batch = training.cohort, local.step_samples
    changes = PrivateTraining(spec.secure_aggregation, dp, exposure, training.rounds, cohort, batch)
    weighting = "uniform" if dp is not None and dp.of_clients else method.weighting
    return replace(method, private=changes, local=local, weighting=weighting)


def exposure_of(scenario: Scenario, method: Method, samples: Sequence[int]) -> Exposure:
    """Return how often clients, or examples, are in a sum with noise."""
    training, dp = scenario.training, scenario.privacy.dp
    assert dp is not None
    uniform = training.selection.name == "uniform"
    return Exposure(dp, scenario.data.clients, training.cohort, samples, method.local, uniform)


def step_costs(
    scenario: Scenario,
    labels: Iterable[str],
    known: Mapping[str, Sequence[StepRow]] | None = None,
    *,
    trains: bool = False,
) -> dict[str, StepCosts]:
    """Methods' step costs by label; ``known``: not measured again; ``trains``: with blocks compared on numbers."""
    model, known = CostModel(skeleton(scenario, numbers=trains)), known or {}
    scenario.privacy.check_model(model.model)
    recipes = {label: recipe_of(scenario, scenario.method(label)) for label in labels}
    return {label: StepCosts(model, recipe, scenario.cost, known.get(label, ())) for label, recipe in recipes.items()}


def shared_world(scenario: Scenario, seed: int, data: FederatedData | None) -> SharedWorld:
    """Return the fleet and shards of a seed; without ``data``, only the shards' sizes are computed."""
    fleet = assign(scenario.fleet, scenario.data.clients, seed, start=scenario.start)
    links = client_links_of(scenario, fleet, seed)
    if data is None:
        with errors_at("data"):
            samples = shard_sizes(scenario.data, seed, scenario.evaluation.split)
        return SharedWorld(seed, fleet, links, samples, Facts())
    return SharedWorld(seed, fleet, links, data.sizes, Facts(label_support=data.label_counts > 0))


def reads_labels(scenario: Scenario, seed: int) -> bool:
    """Whether the selector reads the classes of clients."""
    return "label_support" in scenario.training.selection.spec.start(seed).reads


def data_of(scenario: Scenario, seed: int, device: torch.device | str = "cpu", room: float = math.inf) -> FederatedData:
    """Return the clients' data of a seed, with the labels that attackers train with."""
    with errors_at("data"):
        data = load_federated(scenario.data, seed, device, scenario.evaluation.split, room=room)
    attackers = Attackers.of(scenario.failures, scenario.data.clients, seed)
    return data if attackers is None else attackers.data(data)


def world_of(scenario: Scenario, seed: int) -> SharedWorld:
    """Return the fleet and shards of a seed; the data are read only if the selector reads their labels."""
    return shared_world(scenario, seed, data_of(scenario, seed) if reads_labels(scenario, seed) else None)


_RATE = {"down": 1e6, "up": 1e6}  # nothing is sent; low, so that an emulation need not slow its clock down
_NO_TRANSFERS = NetworkSpec.model_validate({"topology": {"kind": "star", "server": _RATE}, "links": {"server": _RATE}})


def scenario_for(scenario: Scenario, method: Method) -> Scenario:
    """Return what a method runs in: the scenario, or, for training on the server, the server as the only client."""
    server, training = method.objective.server, scenario.training
    if server is None:
        return scenario
    base = scenario.prices or FleetPrices()
    priced = [name for name in ("carbon", "energy", "traffic") if getattr(base, name) is not None]
    alone = TrainingSpec(rounds=training.rounds, cohort=1, local=training.local, engine=training.engine)
    changes = {
        "data": scenario.data.model_copy(update={"clients": 1}),
        "training": alone,
        "protocol": SynchronousSpec(),
        "fleet": (FleetGroup(profile=server, count=1, link="server"),),
        "network": _NO_TRANSFERS,
        "evaluation": scenario.evaluation.model_copy(update={"on": None}),
        "round_overhead": RoundOverhead(),
        "failures": (),
        "privacy": Privacy(),
        "prices": FleetPrices.model_validate({name: getattr(base.server, name, None) or 0.0 for name in priced}),
    }
    return scenario.model_copy(update=changes)


def world_for(scenario: Scenario, world: SharedWorld, method: Method) -> tuple[Scenario, SharedWorld]:
    """Return what a method runs in, as :func:`scenario_for`, and its world."""
    there = scenario_for(scenario, method)
    if there is scenario:
        return scenario, world
    fleet = assign(there.fleet, 1, world.seed, start=there.start)
    links = client_links_of(there, fleet, world.seed)
    return there, SharedWorld(world.seed, fleet, links, world.samples.sum(keepdims=True), Facts())


def client_links_of(scenario: Scenario, fleet: FleetAssignment, seed: int) -> ClientLinks:
    """Return the capacities of the clients' links of a seed."""
    return ClientLinks(scenario.network.links, [str(name) for name in fleet.link_names()], seed)


def bills_of(scenario: Scenario, fleet: FleetAssignment) -> Bills | None:
    """Return the prices of each group of the fleet and of the server; ``None`` without prices."""
    if not scenario.priced:
        return None
    start, base = fleet.start, scenario.prices or FleetPrices()
    each = zip(fleet.prices, fleet.links, fleet.timezone, strict=True)
    server = (base.server or Prices()).rates(None, "server", start, None)
    return Bills([base.rates(own, link, start, zone) for own, link, zone in each], server)


def limits_of(scenario: Scenario) -> Limits:
    """Return the budgets and targets of one run, none reached yet."""
    smoothed = scenario.target_metric.endswith("_ema")
    return Limits(scenario.budgets.limits(), values_of(scenario.targets), scenario.task.measured, smoothed=smoothed)


def evaluation_of(scenario: Scenario, seed: int) -> RoundEvaluation | None:
    """Return how clients and the server evaluate, as a part of each round."""
    spec = scenario.evaluation
    if spec.on is None:
        return None
    with errors_at("data"):
        tested = samples_to_evaluate(scenario.data, spec.split)
        own = evaluation_sizes(scenario.data, seed, spec.split) if spec.on != "server" else np.zeros(0, np.int64)
    images = own if spec.images is None else np.minimum(own, spec.images)
    share = 0.0 if spec.on == "server" else spec.share
    return RoundEvaluation(share, images, on_server=0 if spec.on == "clients" else tested)


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
    cost: CostOf | None = None,
) -> Setup:
    """Return one run's setup; ``cost`` is called for the cost of a local step in place of ``costs``."""
    method, model = costs.method, costs.adapted_model()
    levels = range(0 if method.submodels is None else len(method.submodels.levels))
    allocation = scenario.training.bandwidth.spec

    def sizes(sent: BlockModel, codec: Codec) -> ModelSizes:
        """Encoded bytes of the blocks; in FedBR's cost model S/M of the sum for each."""
        found = encoded_sizes(codec, sent.layout)
        return found.uniform() if isinstance(scenario.cost, PaperCost) else found

    seconds = None
    if isinstance(scenario.cost, SecondsCost):
        key = chosen.label if chosen.label in scenario.cost.methods else chosen.name
        seconds = ComputeSeconds(scenario.cost, key, world.seed, scenario.data.clients)
    dp, ledger = scenario.privacy.dp, None
    if dp is not None and isinstance(method.private, PrivateTraining):
        ledger = Ledger(exposure_of(scenario, method, world.samples.tolist()), method.private.noise)
    return Setup(
        **connected(world.fleet, scenario.network, world.seed, world.links),
        fleet=world.fleet,
        seed=world.seed,
        label=chosen.label,
        rounds=scenario.training.rounds,
        cohort=scenario.training.cohort,
        protocol=scenario.protocol,
        method=method,
        scheduler=None if chosen.scheduler is None else chosen.scheduler.start(world.seed, model.depth),
        selector=scenario.training.selection.spec.start(world.seed),
        facts=world.facts,
        sizes=sizes(model, method.codecs.down),
        sizes_up=sizes(model, method.codecs.up),
        sizes_plain=sizes(model, NoCodec()),
        base_bytes=model.base_bytes if model.lora is not None and model.lora.base_sent == "once" else 0,
        level_sizes=[sizes(costs.part_of(level)[0].model, NoCodec()).of_model_with(model.depth) for level in levels],
        cost=cost or costs.step,
        samples=world.samples,
        learner=learner,
        limits=limits_of(scenario),
        stop=scenario.stop,
        server_device=scenario.training.server,
        evaluation=evaluation_of(scenario, world.seed),
        evaluate_every=scenario.evaluation.every,
        trains=trains,
        seconds=seconds,
        failures=timed(scenario.failures),
        listeners=listeners,
        figures=tuple(scenario.quantities),
        prices=bills_of(scenario, world.fleet),
        overhead=scenario.round_overhead,
        secure=scenario.privacy.secure_aggregation,
        ledger=ledger,
        poisson=dp is not None and dp.kind == "central" and dp.sampling == "poisson",
        bandwidth=None if type(allocation) is Equal else allocation,  # the network itself computes equal shares
    )
