"""Everything that one run depends on, prepared before its clock starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol, TypedDict

import networkx as nx
import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.fleet import DeviceProfile, FleetAssignment
from edgefl.fleet.prices import Bills
from edgefl.methods.parts.payload import ModelSizes, Part, checked_parts
from edgefl.methods.recipe import Method
from edgefl.network.client_links import ClientLinks
from edgefl.network.flow import FlowObserver, Network
from edgefl.network.specs import NetworkSpec
from edgefl.network.topology import Topology
from edgefl.network.transport import Timeouts, Transport
from edgefl.network.tree import build_topology
from edgefl.privacy.ledger import Ledger
from edgefl.privacy.messages import masked
from edgefl.privacy.secure_aggregation import SecureAggregation
from edgefl.record.events import EventLog, Listener
from edgefl.record.figures import Quantity
from edgefl.scheduling.bandwidth.base import BandwidthSpec
from edgefl.scheduling.blocks.base import BlockScheduler
from edgefl.scheduling.selection.base import Facts, Selector
from edgefl.simulation.accounts import Limits
from edgefl.simulation.clock import Clock
from edgefl.simulation.cost_specs import ComputeSeconds, RoundOverhead
from edgefl.simulation.presence import Crash, Outage
from edgefl.simulation.protocols.base import ProtocolSpec
from edgefl.simulation.work import CostOf
from edgefl.training.faults import blaming
from edgefl.training.job import Learner, TrainingJob


class Testbed(Protocol):
    """Real time and real links for a run, in place of computed ones."""

    @property
    def clock(self) -> Clock: ...

    def network(self, topology: Topology, *, observer: FlowObserver, transport: Transport) -> Network:
        """The run's network, on its clock."""

    @property
    def trains(self) -> bool:
        """True if local training takes the time of a real process, not the predicted seconds."""

    def train(self, job: TrainingJob, slowdown: float) -> simpy.Event:
        """Train a job; the event triggers when it is done. ``slowdown`` is the factor of random slowdowns and heat."""

    def stop_training(self, job: TrainingJob) -> None:
        """End the training of a job; its event never triggers."""


class Connection(TypedDict):
    """The fields of a setup that are its network's."""

    topology: Topology
    transport: Transport
    timeouts: Timeouts | None
    capacity_changes: ClientLinks


def connected(
    fleet: FleetAssignment, network: NetworkSpec, seed: int, client_links: ClientLinks | None = None
) -> Connection:
    """A fleet on a network; ``client_links`` are the capacities of the clients' links, if they are already built."""
    links = [str(name) for name in fleet.link_names()]
    return {
        "topology": build_topology(network.topology, network.links, links),
        "transport": network.transport.build(seed),
        "timeouts": network.transport.timeouts,
        "capacity_changes": client_links or ClientLinks(network.links, links, seed),
    }


@dataclass(frozen=True)
class RoundEvaluation:
    """How the model of a round is evaluated, as a part of the round."""

    share: float  # of the available clients that evaluate it; 0: none
    images: NDArray[np.int64]  # of each client, [clients]
    on_server: int  # images on which the server evaluates it; 0: none


@dataclass(frozen=True)
class Setup:
    """One run: a method and a seed on a fleet and a network."""

    label: str
    seed: int
    rounds: int
    cohort: int
    protocol: ProtocolSpec
    method: Method
    # chooses each client's alpha in partial rounds, for methods with a partial downlink
    scheduler: BlockScheduler | None
    selector: Selector  # picks the cohort; facts are its facts about clients
    facts: Facts
    sizes: ModelSizes
    cost: CostOf
    fleet: FleetAssignment
    samples: NDArray[np.int64]  # n_k of every client [clients]
    topology: nx.DiGraph[Any] | Topology  # the network between server and client/k
    transport: Transport
    capacity_changes: ClientLinks
    learner: Learner
    limits: Limits
    # budget ends at the first exhausted budget, target also when all targets are reached, rounds never before the
    # last round
    stop: str = "budget"
    server_device: DeviceProfile | None = None  # whose aggregation and evaluation take time; None: none does
    evaluation: RoundEvaluation | None = None  # as a part of each round that is evaluated
    evaluate_every: int = 1  # rounds between evaluations; the last model is always evaluated
    trains: bool = True
    # the duration of local training, if the devices' rooflines do not determine it
    seconds: ComputeSeconds | None = None
    timeouts: Timeouts | None = None
    failures: Sequence[Crash | Outage] = ()
    sizes_up: ModelSizes | None = None  # bytes of the blocks as clients return them; sizes by default
    sizes_plain: ModelSizes | None = None  # their bytes as float32; sizes by default
    base_bytes: int = 0  # of frozen weights, which each client receives once
    # bytes of the blocks of each capacity level's part of the model, both ways; empty without levels
    level_sizes: Sequence[ModelSizes] = ()
    listeners: Sequence[Listener] = ()
    figures: Sequence[Quantity] = ()  # the user's and those of prices, charged for each event that adds to them
    prices: Bills | None = None
    bandwidth: BandwidthSpec | None = None
    overhead: RoundOverhead = field(default_factory=RoundOverhead)
    secure: SecureAggregation | None = None
    ledger: Ledger | None = None  # of differential privacy
    poisson: bool = False  # each client is drawn on its own, with probability cohort / clients

    @property
    def clients(self) -> int:
        return len(self.samples)

    def evaluates(self, round: int) -> bool:
        """True if the model of a round (from 0) is evaluated: every so many rounds, and the last one."""
        return (round + 1) % self.evaluate_every == 0 or round + 1 == self.rounds

    @cached_property
    def log(self) -> EventLog:
        return EventLog(self.listeners)

    def sizes_of(self, level: int) -> ModelSizes:
        """Bytes of the blocks as clients of a capacity level receive them."""
        return self.level_sizes[level] if self.level_sizes else self.sizes

    def uplink(self, level: int = 0, last: int | None = None) -> tuple[Part, ...]:
        """The parts that a client of a capacity level uploads: of all that it trains, or of the ``last`` blocks."""
        sizes = self.level_sizes[level] if self.level_sizes else self.sizes_up or self.sizes
        parts = self._returned(sizes if last is None else sizes.last(last))
        return parts if self.secure is None else masked(self.secure, self.picked, parts)

    def enough(self, picked: int) -> int:
        """Updates that close a round of so many clients."""
        return picked if self.poisson else self.cohort

    @property
    def picked(self) -> int:
        """Clients of a whole cohort."""
        return min(self.protocol.under_way(self.cohort), self.clients)

    @cached_property
    def entries(self) -> int:
        """Numbers that a client uploads of a whole model."""
        return sum(part.bytes for part in self._returned(self.sizes_up or self.sizes)) // 4

    @cached_property
    def cell_uplink(self) -> tuple[Part, ...]:
        """The parts that a cell uploads: the mean of the decoded updates, as float32, because means are not encoded."""
        return self._returned(self.sizes_plain or self.sizes)

    @cached_property
    def _returned(self) -> Callable[[ModelSizes], tuple[Part, ...]]:
        @cache
        def returned(sizes: ModelSizes) -> tuple[Part, ...]:
            with blaming(self.label, 0, "payload"):
                return checked_parts(self.method.payload.uplink(sizes))

        return returned
