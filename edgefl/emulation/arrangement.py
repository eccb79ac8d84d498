"""What the processes and links of a run are like, from the run's setup."""

import math
from collections.abc import Sequence
from typing import Literal

import networkx as nx
import numpy as np

from edgefl.emulation.wiring import LinkSettings, Pair, Wiring, plan_wiring
from edgefl.errors import UserError
from edgefl.fleet import assign
from edgefl.network.build import build_topology
from edgefl.network.client_links import DIRECTIONS, client_link_numbers
from edgefl.network.topology import GraphLinks, Topology, router
from edgefl.record.paths import SeedPaths
from edgefl.record.tables import read_events
from edgefl.scenario import Scenario
from edgefl.simulation.protocol_specs import HierarchicalSpec
from edgefl.simulation.setup import Setup

RANDOM_BYTES = 1 << 20
"""Size of the content of transfers where no model is trained."""

MOST_CLIENTS = 100
"""Up to this number all clients of a fleet get a process; of a larger fleet those that take part in the simulation."""


def check_scenario(scenario: Scenario) -> None:
    """Raise UserError, with the option and the reason, for what real links here cannot do."""
    transport = scenario.network.transport
    if transport.multicast:
        raise UserError("expected false: a TCP connection has one receiver", field="network.transport.multicast")
    if transport.loss:
        raise UserError("expected 0: the links of an emulation lose no packet", field="network.transport.loss")
    if transport.connection_limit is not None:
        raise UserError("expected null: an emulation limits links only", field="network.transport.connection_limit")
    if getattr(scenario.network.topology, "sharing", "wired") != "wired":
        raise UserError("expected wired: an emulation has no radio channels", field="network.topology.sharing")
    if scenario.training.bandwidth.name != "equal":
        raise UserError(
            f"expected equal: real connections share links as TCP does, found {scenario.training.bandwidth.name}",
            field="training.bandwidth.kind",
        )


def taking_part(setup: Setup, predicted: SeedPaths) -> list[int]:
    """All clients of a small fleet, else those that took part in the simulation."""
    if setup.clients <= MOST_CLIENTS:
        return list(range(setup.clients))
    return sorted({event.client for event in read_events(predicted.events, {"transfer_start"}) if event.client >= 0})


def content_of(predicted: SeedPaths) -> bytes:
    """What transfers carry: the simulated run's last model (safetensors), or random bytes where it has none."""
    file = predicted.final_model
    return file.read_bytes() if file.is_file() else np.random.default_rng(0).bytes(RANDOM_BYTES)


def wiring_of(setup: Setup, chosen: Sequence[int]) -> Wiring:
    """The plan of a run's links; UserError for nodes that cannot be emulated, by their number or a name."""
    topology = GraphLinks(setup.topology) if isinstance(setup.topology, nx.Graph) else setup.topology
    peaks: dict[Pair, float] = {}
    for direction in DIRECTIONS:
        highest = setup.capacity_changes.highest(direction).tolist()
        numbers = client_link_numbers(topology, setup.clients, direction)
        for number, rate in zip(numbers.tolist(), highest, strict=True):
            source, target = topology.ends(number)
            peaks[str(source), str(target)] = rate
    return plan_wiring(topology, _talks(topology, setup.protocol, chosen), peaks=peaks)


def wiring_of_all(scenario: Scenario) -> Wiring | None:
    """The plan before a simulation; None for a fleet of which only some clients get a process."""
    clients, network = scenario.data.clients, scenario.network
    if clients > MOST_CLIENTS:
        return None
    fleet = assign(scenario.fleet, clients, scenario.seeds[0])
    topology = build_topology(network.topology, network.links, [str(name) for name in fleet.link_names()])
    return plan_wiring(topology, _talks(topology, scenario.protocol, range(clients)))


def _talks(topology: Topology, protocol: object, chosen: Sequence[int]) -> list[Pair]:
    clients = [f"client/{client}" for client in chosen]
    gates, cells = ["server"] * len(clients), list[Pair]()
    if isinstance(protocol, HierarchicalSpec):
        route = router(topology)
        gates = [str(route("server", client).nodes[-2]) for client in clients]
        cells = [("server", cell) for cell in dict.fromkeys(gates)]
    return [*cells, *zip(gates, clients, strict=True)]


def settings_of(setup: Setup, dilation: float) -> LinkSettings:
    """How a run's links queue and its connections begin, from the scenario's transport."""
    transport, tcp = setup.transport, setup.transport.tcp
    queue: Literal["fair", "fifo"] = "fair" if transport.queue is None else "fifo"
    if tcp is None:
        return LinkSettings(dilation, transport.efficiency, queue)
    window = None if math.isinf(tcp.window) else tcp.window
    return LinkSettings(
        dilation,
        transport.efficiency,
        queue,
        initial_window=None if tcp.initial_window is None else round(tcp.initial_window),
        restart_idle=tcp.restart_idle,
        window=window,
    )
