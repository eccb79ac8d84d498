"""What can only be known by building: does the model fit the data, the scheduler the model, is every file there?"""

from __future__ import annotations

from edgefl.errors import UserError
from edgefl.fleet import assign
from edgefl.input_file import find_input
from edgefl.learning.methods.build import build_method
from edgefl.learning.models.registry import build_model
from edgefl.network.build import build_topology
from edgefl.network.specs import FileTopology, TraceCapacity
from edgefl.network.traces import read_csv, read_mahimahi
from edgefl.scenario.components import built_at
from edgefl.scenario.overrides import Overrides, blamed, parse_overrides
from edgefl.scenario.scenario import Scenario


def rehearse(scenario: Scenario, *, file: str | None = None, overrides: Overrides = ()) -> None:
    """Build once what a run will build, so that nothing has been written yet when something does not fit.

    No image is read where the data set knows its shape beforehand.

    Args:
        scenario: what is to be run.
        file: what the person calls it, for messages.
        overrides: changes that were made to what the file says; a message blames the one that it is about.

    Raises:
        UserError: files are missing or broken, or parts do not fit together; says where.
        BuildFault: a part raised another error.
    """
    try:
        _rehearse_learning(scenario)
        _rehearse_network(scenario)
    except UserError as error:
        raise blamed(error, parse_overrides(overrides), file) from None


def _rehearse_learning(scenario: Scenario) -> None:
    with built_at("data"):
        description = scenario.data.describe()
    with built_at("model"):
        model = build_model(scenario.model.spec, description.shape, description.classes)
    seed = scenario.seeds[0]
    for index, method in enumerate(scenario.methods):
        with built_at(f"methods.{index}"):
            adapted = build_method(method.entry, scenario.training.local, scenario.training.codec).objective.adapt(
                model
            )
        if method.scheduler is not None:
            with built_at(f"methods.{index}.scheduler"):
                method.scheduler.start(seed, adapted.depth)


def _rehearse_network(scenario: Scenario) -> None:
    network = scenario.network
    for name, link in network.links.items():
        for direction, capacity in (("down", link.down), ("up", link.up)):
            if isinstance(capacity, TraceCapacity):
                with built_at(f"network.links.{name}.{direction}.file"):
                    path = find_input(capacity.file, None)
                    if capacity.format == "csv":
                        read_csv(path)
                    else:
                        read_mahimahi(path, every=capacity.every)
    if isinstance(network.topology, FileTopology):
        fleet = assign(scenario.fleet, scenario.data.clients, scenario.seeds[0])
        with built_at("network.topology"):
            build_topology(network.topology, network.links, [str(name) for name in fleet.link_names()])
