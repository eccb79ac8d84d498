"""Checks that need the parts to be built: the model fits the data, the scheduler fits the model, all files exist."""

from __future__ import annotations

from edgefl.data.partitions import ByFile, Flwr, Natural
from edgefl.data.sizes import shard_sizes
from edgefl.errors import UserError
from edgefl.fleet import assign
from edgefl.methods.build import build_method
from edgefl.methods.local_part import keeping_local
from edgefl.models.registry import build_model, checked_model
from edgefl.network.build import build_topology
from edgefl.network.replayed import ReplayedLink
from edgefl.network.specs import FileTopology
from edgefl.process_state import process_state_kept
from edgefl.scenario.components import built_at
from edgefl.scenario.overrides import Overrides, blamed, parse_overrides
from edgefl.scenario.scenario import Scenario


@process_state_kept()
def rehearse(scenario: Scenario, *, file: str | None = None, overrides: Overrides = ()) -> None:
    """Build all parts of a run once, so that errors are found before anything is written.

    No image is read if the data set defines its shape, and the partition and the model do not depend on more.

    Args:
        scenario: the scenario to run.
        file: the user's name for it, for messages.
        overrides: changes that were made to the file's contents; a message names the one that causes the error.

    Raises:
        UserError: files are missing or damaged, or parts do not fit together; the message contains the field.
        BuildFault: a part raised another error.
    """
    try:
        _rehearse_learning(scenario)
        _rehearse_network(scenario)
    except UserError as error:
        raise blamed(error, parse_overrides(overrides), file) from None


def _rehearse_learning(scenario: Scenario) -> None:
    from edgefl.cost.blocks import block_figures
    from edgefl.data.dataset import check_tokens

    with built_at("data"):
        description = scenario.data.describe()
        if isinstance(scenario.data.partition, Natural | ByFile | Flwr):
            shard_sizes(scenario.data, scenario.seeds[0], scenario.evaluation.split)
    with built_at("model"):
        model = build_model(
            scenario.model.spec,
            description.shape,
            description.classes,
            scenario.task,
            tokens=description.kind == "tokens",
        )
        block_figures(model)  # raises an error if its operators cannot be counted
    if model.tokens is not None:
        check_tokens(scenario.data, model.tokens)
    seed = scenario.seeds[0]
    for index, method in enumerate(scenario.methods):
        with built_at(f"methods.{index}"):
            recipe = build_method(method.entry, scenario.training.local, scenario.training.codec)
            adapted = checked_model(recipe.objective.adapt(model))
            keeping_local(recipe, adapted.layout)
        if method.scheduler is not None:
            with built_at(f"methods.{index}.scheduler"):
                method.scheduler.start(seed, adapted.depth)


def _rehearse_network(scenario: Scenario) -> None:
    network = scenario.network
    for name, link in network.links.items():
        with built_at(f"network.links.{name}"):
            ReplayedLink(name, link, scenario.data.clients, scenario.seeds[0])
    if isinstance(network.topology, FileTopology):
        fleet = assign(scenario.fleet, scenario.data.clients, scenario.seeds[0])
        with built_at("network.topology"):
            build_topology(network.topology, network.links, [str(name) for name in fleet.link_names()])
