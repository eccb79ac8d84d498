"""Checks that need the parts to be built: the model fits the data, the scheduler fits the model, all files exist."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from pydantic import BaseModel

from edgefl.data.federated import reads_samples, shard_sizes
from edgefl.data.partitions.flwr import Flwr
from edgefl.data.sharding import Integers
from edgefl.errors import Note, UserError
from edgefl.fleet import DeviceProfile, assign
from edgefl.methods.build import build_method
from edgefl.methods.fits import Requirement
from edgefl.methods.parts.local_part import keeping_local
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.models.norm import has_library_norms, is_refusal
from edgefl.models.random_layers import RandomFunctions
from edgefl.models.registry import build_model, checked_model
from edgefl.models.zoo.ordinary import PythonModel
from edgefl.models.zoo.transformers import padding_of
from edgefl.network.capacities.base import DIRECTIONS
from edgefl.network.capacities.trace import TraceCapacity
from edgefl.network.client_links import started
from edgefl.network.specs import FileTopology
from edgefl.network.tree import build_topology
from edgefl.scenario.components import built_at
from edgefl.scenario.overrides import Overrides, blaming_changes
from edgefl.scenario.scenario import Scenario
from edgefl.scheduling.blocks.schedulers import GmbsScheduler
from edgefl.simulation.cost_specs import SecondsCost
from edgefl.simulation.presence import Outage, check_outages, spans_of
from edgefl.simulation.work import batch_counts
from edgefl.torch_settings import neutral_torch


class TraceFigures(NamedTuple):
    """What a trace of a link is: ``place`` is its link and direction, ``gap`` the longest time of one rate."""

    place: str
    name: str
    period: float  # seconds
    mean: float  # bit/s
    gap: float  # seconds


@neutral_torch()
def rehearse(
    scenario: Scenario,
    *,
    file: str | None = None,
    overrides: Overrides = (),
    trains: bool = True,
    limited: bool = False,
) -> list[TraceFigures]:
    """Build all parts of a run once, so that errors are found before anything is written; returns its links' traces.

    No image is read if the data set defines its shape, and the partition and the model do not depend on more. ``file``
    is the scenario's name in messages, which also name the one of ``overrides`` that causes the error. If the run
    ``trains``, an ordinary module's step is compared with PyTorch's; ``limited``: only if the step is a small one.
    """
    with blaming_changes(overrides, file):
        methods = _rehearse_learning(scenario, trains=trains, limited=limited)
        traces = _rehearse_network(scenario)
    for option, reason in _without_effect(scenario, methods):
        warnings.warn(f"{option} has no effect: {reason}", Note, stacklevel=1)
    return traces


def _without_effect(scenario: Scenario, methods: Sequence[Method]) -> Iterator[tuple[str, str]]:
    """Options that were set and change nothing in this scenario, with the reasons."""
    protocol, links = scenario.protocol, scenario.network.links
    declared = isinstance(scenario.cost, SecondsCost)

    def changed(part: BaseModel, option: str) -> bool:
        field = type(part).model_fields.get(option)
        return field is not None and getattr(part, option) != field.default

    alone = scenario.evaluation.on in (None, "server")
    idle = scenario.training.server is not None and not protocol.has_rounds
    training, local = "cost.kind is seconds, which are those of a whole training on any device", scenario.training.local
    late, levels = getattr(protocol, "late", None), any(each.submodels for each in methods)
    accidents, overlap = any(group.dropout for group in scenario.fleet), any(each.overlap for each in methods)
    momentum, decay = (any(getattr(each.local, k) for each in methods) for k in ("momentum", "weight_decay"))
    found = [
        (declared and local.input is not None, "training.local.input", training),
        (local.nesterov and not momentum, "training.local.nesterov", "training.local.momentum is 0"),
        (bool(local.no_decay) and not decay, "training.local.no_decay", "training.local.weight_decay is 0"),
        (protocol.retries and not accidents, "protocol.retries", "no device has accidents (fleet.N.dropout)"),
        (changed(protocol, "ahead") and not overlap, "protocol.ahead", "no method has overlap: true"),
        (alone and changed(scenario.evaluation, "share"), "evaluation.share", "evaluation.on: no client evaluates"),
        (alone and changed(scenario.evaluation, "images"), "evaluation.images", "evaluation.on: no client evaluates"),
        (idle, "training.server", f"aggregation takes no time with protocol.kind: {protocol.kind}"),
        (changed(protocol, "reserve") and late != "partial", "protocol.reserve", "protocol.late is not partial"),
    ]
    for index, group in enumerate(scenario.fleet):
        hot = isinstance(group.profile, DeviceProfile) and group.profile.compute.thermal is not None
        found += [
            (declared and hot, f"fleet.{index}: compute.thermal (heat)", training),
            (declared and group.sample is not None, f"fleet.{index}.sample", f"{training}; only memory differs"),
            (group.capacity < 1 and not levels, f"fleet.{index}.capacity", "no method sends parts of a model"),
        ]
    for name, link in links.items():
        for way in DIRECTIONS:
            spec = getattr(link, way)
            every = isinstance(spec, TraceCapacity) and changed(spec, "every") and spec.format != "mahimahi"
            found.append((every, f"network.links.{name}.{way}.every", "only mahimahi traces are averaged"))
    yield from ((option, reason) for holds, option, reason in found if holds)


def _rehearse_learning(scenario: Scenario, *, trains: bool, limited: bool) -> list[Method]:
    from edgefl.cost.measure import block_figures, measure
    from edgefl.data.dataset import check_padding, check_tokens

    with built_at("data"):
        description = scenario.data.describe()
        if scenario.data.partition.by_owner or isinstance(scenario.data.partition, Flwr):
            shard_sizes(scenario.data, scenario.seeds[0], scenario.evaluation.split)
    with built_at("model"):
        model = build_model(
            scenario.model.spec,
            description.shape,
            description.classes,
            scenario.task,
            tokens=description.kind == "tokens",
            numbers=trains,
        )
        if trains:
            _compare_with_pytorch(scenario, model, limited=limited)
        block_figures(model)  # raises an error if its operators cannot be counted
    if model.tokens is not None:
        check_tokens(scenario.data, model.tokens)
    if (padding := padding_of(model)) is not None:
        check_padding(scenario.data, padding)
    training, seed, methods, protocol = scenario.training, scenario.seeds[0], list[Method](), scenario.protocol
    with built_at("protocol"):
        for each in scenario.seeds:
            protocol.accept(scenario.data.clients, each)
    for index, method in enumerate(scenario.methods):
        with scenario.built_method(index):
            recipe = build_method(method.entry, training.local, training.codec, training.rounds)
            adapted = checked_model(recipe.objective.adapt(model))
            keeping_local(recipe, adapted.layout, Requirement(f"protocol '{protocol.kind}'", protocol.needs))
            recipe.local.on(adapted.layout)
            if adapted.recomputes:  # which not every loss can do
                measure(adapted, recipe, adapted.depth, 2)
            methods.append(recipe)
        if method.scheduler is not None:
            with built_at(f"methods.{index}.scheduler"):
                scheduler = method.scheduler.start(seed, adapted.depth)
            if isinstance(scheduler, GmbsScheduler) and adapted.depth < 3:
                choice = f"of {adapted.depth} blocks gmbs can only choose one"
                warnings.warn(
                    f"methods.{index}.scheduler: bonus_scale and lam have no effect: {choice}", Note, stacklevel=1
                )
    if has_library_norms(model):  # the seeds whose shards are known; where images must be read first, the first seed
        split = scenario.evaluation.split
        for each in scenario.seeds[:1] if reads_samples(scenario.data, split) else scenario.seeds:
            with built_at("data"):
                samples = shard_sizes(scenario.data, each, split)
            check_last_batches(model, methods, samples)
    return methods


_SMALL_BYTES, _SMALL_FLOPS = 2 << 30, 2e11
"""Memory of a step that ``validate`` takes, and its floating-point operations, about ten seconds on two cores."""


def _compare_with_pytorch(scenario: Scenario, model: BlockModel, *, limited: bool) -> None:
    from edgefl.cost.measure import measure
    from edgefl.training.self_test import SAMPLES, check_module, refusal

    if model.fresh is None:
        return
    local = scenario.training.local
    if limited:
        cost = measure(model, build_method("fedavg", local), model.depth, SAMPLES)
        if 4 * cost.peak_memory_bytes > _SMALL_BYTES or cost.training_flops > _SMALL_FLOPS:
            note = "one step of this model is not compared with PyTorch's here, because it is a large one; training"
            warnings.warn(f"{note} begins with this comparison", Note, stacklevel=1)
            return
    check_module(model, local)
    if scenario.keep_models != "none" and (reason := refusal(model)) is not None:
        sentence = (
            f"its class does not load the state dict of a trained model ({reason}), so final.safetensors would be of "
            "no use to it; set keep_models: none, or let load_state_dict accept a plain state dict"
        )
        if isinstance(scenario.model.spec, PythonModel):
            raise UserError(sentence)
        warnings.warn(f"model: {sentence}", Note, stacklevel=1)


def _rehearse_network(scenario: Scenario) -> list[TraceFigures]:
    network, traces = scenario.network, list[TraceFigures]()
    for name, link in network.links.items():
        with built_at(f"network.links.{name}"):
            ways = started(name, link, scenario.data.clients, scenario.seeds[0])
        for way, capacities in ways.items():
            for title, trace in capacities.traces.items():
                figures = trace.period, trace.mean(), trace.longest
                traces.append(TraceFigures(f"network.links.{name}.{way}", title, *figures))
    if isinstance(network.topology, FileTopology) or spans_of(scenario.failures, Outage):
        fleet = assign(scenario.fleet, scenario.data.clients, scenario.seeds[0])
        with built_at("network.topology"):
            links = build_topology(network.topology, network.links, [str(name) for name in fleet.link_names()])
        check_outages(scenario.failures, links)
    return traces


def check_last_batches(model: BlockModel, methods: Iterable[Method], samples: Integers) -> None:
    """Check, from ``samples [clients]``, that no client has a batch of one if the model cannot be trained with it."""
    for method in methods if has_library_norms(model) else ():
        local, sizes = method.local, samples if method.objective.server is None else samples.sum(keepdims=True)
        one = 1 % local.batch
        alone = {
            size
            for size in np.unique(sizes).tolist()
            if any(each % local.batch == one for each in batch_counts(local, size))
        }
        clients = [client for client, size in enumerate(sizes.tolist()) if size in alone]
        if clients and not _takes_one_sample(model):
            first, others = clients[0], len(clients) - 1
            raise UserError(
                "expected batches of two or more samples, which the model's batch norm needs to train; client "
                f"{first}{f' and {others} others' * bool(others)} with {sizes[first]} samples in batches of "
                f"{local.batch} would train one alone; set drop_last: true, which leaves out the last batch, another "
                "batch, or divide the data otherwise",
                field="training.local",
            )


def _takes_one_sample(model: BlockModel) -> bool:
    """True if a local step can have a batch of one sample; the model is called once to find out."""
    try:
        with torch.no_grad(), using(training=True, track=False), RandomFunctions(torch.tensor(0)), model.calls():
            model.apply_blocks(model.zero_weights(), model.inputs(1))
    except ValueError as error:
        if not is_refusal(error):
            raise
        return False
    return True
