"""A world small enough to be worked out by hand: one kind of device, one kind of link, a model of four equal blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from pydantic import TypeAdapter

from edgefl.experiment.summary import summarise
from edgefl.fleet import DeviceProfile, FleetAssignment
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.payload import ModelSizes
from edgefl.network import Transport, TreeLinks
from edgefl.network.transport import Timeouts
from edgefl.record.events import Event, Listener
from edgefl.record.metric import ACCURACY
from edgefl.record.rounds import ROUNDS
from edgefl.registry import chosen_part
from edgefl.rerun.laws import Record, violations
from edgefl.scheduling.bandwidth.base import bandwidth as bandwidth_spec
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS
from edgefl.scheduling.selection.base import Facts, selection
from edgefl.simulation.accounts import Limits
from edgefl.simulation.cost_specs import RoundOverhead
from edgefl.simulation.presence import Failure
from edgefl.simulation.protocols.base import AnyProtocol
from edgefl.simulation.run import Outcome, simulate_run
from edgefl.simulation.setup import Setup
from edgefl.training.job import Digests, Evaluation, Feedback, JobId, Mixing, TrainingJob

from ..small_runs import Rows

LOCAL = LocalOptions(epochs=2, batch=10)
BLOCK = 250_000
"""Bytes of each of the four blocks: a model takes 1 s over 8 Mbit/s."""


def cells(access: Sequence[float], *, backhaul: tuple[float, float] = (8e6, 8e6), count: int = 2) -> TreeLinks:
    """Clients with these rates, client k in cell k modulo ``count``."""
    cell = [client % count for client in range(len(access))]
    return TreeLinks(server=(1e12, 1e12), down=access, up=access, backhaul=[backhaul] * count, cell=cell)


@pytest.fixture(name="device")
def device_fixture() -> Callable[..., DeviceProfile]:
    """See :func:`device`."""
    return device


def device(flops_per_second: float = 1e9, memory: float = 1e9) -> DeviceProfile:
    """A device without overheads, whose radio draws 2 W and 1 J/MB, which idles at 1 W and computes at 5 W."""
    radio = {"active": 2.0, "energy_per_megabyte": 1.0}
    return DeviceProfile.model_validate(
        {
            "name": f"device-{flops_per_second:.0f}-{memory:.0f}",
            "kind": "sbc",
            "description": "for tests",
            "compute": {
                "processor": "one",
                "fp32_peak": flops_per_second,
                "fp32_achievable": flops_per_second,
                "memory_bandwidth": 1e12,
                "operator_overhead": 0.0,
                "step_overhead": 0.0,
            },
            "memory": {"total": memory, "training": memory},
            "power": {"idle": 1.0, "compute": 5.0, "radio": {"down": radio, "up": radio}},
            "provenance": {"sources": "invented", "date": "2026-01-01", "verified": False},
        }
    )


@dataclass
class RecordingLearner:
    """Remembers what the world asks of it; accuracy rises by 0.1 a round."""

    submitted: list[TrainingJob] = field(default_factory=list)
    received_by: list[tuple[int, int]] = field(default_factory=list)
    discarded: list[JobId] = field(default_factory=list)
    aggregated: list[list[JobId]] = field(default_factory=list)
    mixings: list[Mixing | None] = field(default_factory=list)
    asked: list[tuple[int, list[int], int | None]] = field(default_factory=list)

    def submit(self, job: TrainingJob) -> None:
        self.submitted.append(job)

    def received(self, client: int, version: int) -> None:
        self.received_by.append((client, version))

    def discard(self, job: JobId) -> None:
        self.discarded.append(job)

    def aggregate(self, version: int, jobs: list[JobId], round: int, mixing: Mixing | None = None) -> int:
        assert version == round == len(self.aggregated)
        self.aggregated.append(jobs)
        self.mixings.append(mixing)
        return version + 1

    def digests(self, version: int) -> Digests | None:
        return None

    def feedback(self, job: JobId) -> Feedback:
        return Feedback(loss=1.0 / (1 + job.dispatch), first_loss=1.0, distance=1.0 + job.client, drift=0.0)

    def local_losses(self, version: int, clients: Sequence[int], images: int | None) -> list[float]:
        self.asked.append((version, list(clients), images))
        return [float(client) for client in clients]

    def evaluate(self, version: int) -> Evaluation:
        return Evaluation(min(1.0, version / 10), math.exp(-version))


def star(rates: Sequence[float], *, server: float = math.inf, latency: float = 0.0) -> nx.DiGraph:
    """Clients with these rates (bit/s, both ways) around a server."""
    graph = nx.DiGraph()
    for ends in (("server", "internet"), ("internet", "server")):
        graph.add_edge(*ends, capacity=server, latency=0.0)
    for client, rate in enumerate(rates):
        for ends in (("internet", f"client/{client}"), (f"client/{client}", "internet")):
            graph.add_edge(*ends, capacity=rate, latency=latency)
    return graph


@dataclass
class SmallRun:
    """A finished run, with everything that a test may want to look at."""

    outcome: Outcome
    setup: Setup
    learner: RecordingLearner
    events: list[Event]
    record: Record

    def of(self, kind: str, **columns: Any) -> list[Any]:
        """Events of a kind whose columns have these values."""
        return [
            event
            for event in self.events
            if event.kind == kind and all(getattr(event, name) == value for name, value in columns.items())
        ]


def _null(value: Any) -> Any:
    return None if value != value else value


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SmallRun]:
    """Runs a world of a few clients; a client's local training takes 2 s on a device of 1 GFLOP/s.

    The log of each run must obey the laws of conservation. Waits for another attempt are as long as usual, by hand.
    """
    monkeypatch.setattr("edgefl.network.transport.WAIT_JITTER", 0.0)

    def make(
        entry: Any = "fedavg",
        *,
        rates: Sequence[float] = (8e6, 8e6),
        cohort: int | None = None,
        rounds: int = 2,
        devices: Sequence[DeviceProfile] | None = None,
        server: float = math.inf,
        latency: float = 0.0,
        selector: Any = "uniform",
        scheduler: Any = None,
        protocol: dict[str, Any] | None = None,
        budgets: dict[str, float] | None = None,
        targets: Sequence[float] = (),
        stop: str = "budget",
        evaluate_every: int = 1,
        trains: bool = True,
        capacity_changes: Any = None,
        topology: Any = None,
        seconds: Any = None,
        transport: Transport | None = None,
        timeouts: dict[str, Any] | None = None,
        failures: Sequence[dict[str, Any]] = (),
        listeners: Sequence[Listener] = (),
        bandwidth: Any = None,
        fleet: dict[str, Any] | None = None,
        local: LocalOptions = LOCAL,
        samples: int = 10,
        overhead: dict[str, Any] | None = None,
        base_bytes: int = 0,
        **others: Any,
    ) -> SmallRun:
        clients = len(rates)
        chosen = list(devices or [device()] * clients)
        kinds = list({each.name: each for each in chosen}.values())
        learner, log = RecordingLearner(), Rows()

        def cost(alpha: int, batch: int, *_: object) -> Any:
            flops = 1e8 * batch
            operators = (SimpleNamespace(flops=flops, bytes=0.0, count=1),)
            return SimpleNamespace(operators=operators, training_flops=flops, peak_memory_bytes=5e8)

        setup = Setup(
            label="method",
            seed=0,
            rounds=rounds,
            cohort=cohort or clients,
            protocol=TypeAdapter(AnyProtocol).validate_python(protocol or {}),
            method=build_method(entry, local),
            scheduler=None if scheduler is None else chosen_part(BLOCK_SCHEDULERS, scheduler).start(0, 4),
            selector=selection(selector).start(0),
            facts=Facts(),
            sizes=ModelSizes((BLOCK,) * 4),
            cost=cost,
            fleet=FleetAssignment(
                profiles=tuple(kinds),
                links=("link",) * len(kinds),
                group=np.array([kinds.index(each) for each in chosen], np.int32),
                **(fleet or {}),
            ),
            samples=np.full(clients, samples),
            topology=star(rates, server=server, latency=latency) if topology is None else topology,
            transport=transport or Transport(),
            capacity_changes=capacity_changes
            or SimpleNamespace(attach=lambda network: None, round_begins=lambda network, round: None),
            learner=learner,
            limits=Limits(budgets or {}, targets, ACCURACY),
            stop=stop,
            evaluate_every=evaluate_every,
            trains=trains,
            seconds=seconds,
            timeouts=None if timeouts is None else Timeouts(**timeouts),
            failures=TypeAdapter(tuple[Failure, ...]).validate_python(failures),
            listeners=[log, *listeners],
            bandwidth=None if bandwidth is None else bandwidth_spec(bandwidth),
            overhead=RoundOverhead(**(overhead or {})),
            base_bytes=base_bytes,
            **others,
        )
        outcome = simulate_run(setup)
        summary = summarise(outcome, 0, block_wise=scheduler is not None, why=None)
        table = {name: [_null(getattr(row, name)) for row in outcome.rows] for name in ROUNDS.names}
        record = Record(log.rows, table, summary, setup.fleet, server=setup.server_device)
        assert not trains or list(violations(record)) == []  # the learner evaluates models in any case
        return SmallRun(outcome, setup, learner, log.rows, record)

    return make
