"""Runs a scenario twice, simulated and emulated, with the same training."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import networkx as nx

from edgefl.emulation.carrying import measured_rates
from edgefl.emulation.dilation import choose_dilation
from edgefl.emulation.laboratory import Laboratory
from edgefl.emulation.link_settings import LinkSettings
from edgefl.emulation.machine import check, missing
from edgefl.emulation.quotas import at_a_time, check_real_training, quotas_of
from edgefl.emulation.testbed import Testbed
from edgefl.emulation.trainer import Plan
from edgefl.emulation.trainers import Trainers
from edgefl.emulation.trust import doubts
from edgefl.emulation.wiring import Pair, Wiring, plan_wiring
from edgefl.emulation.workplace import workplace
from edgefl.errors import UserError
from edgefl.experiment import look_free, run
from edgefl.experiment.one_run import MakeTestbed
from edgefl.network.client_links import DIRECTIONS, client_link_numbers
from edgefl.network.route import router
from edgefl.network.topology import GraphLinks
from edgefl.record.emulation import Emulation, Load, WireBytes, write_emulation
from edgefl.record.listener import Listener
from edgefl.record.paths import RunPaths, SeedPaths
from edgefl.record.tables import read_events
from edgefl.scenario import Scenario
from edgefl.simulation.protocol_specs import HierarchicalSpec
from edgefl.simulation.setup import Setup

MOST_CLIENTS = 100
"""Up to this number all clients of a fleet get a process; of a larger fleet those that take part in the simulation."""


class Emulated(NamedTuple):
    """The two run directories of an emulation."""

    measured: Path
    predicted: Path


def emulate(
    scenario: Scenario,
    *,
    out: Path,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    train: bool = True,
    dilation: float | None = None,
    say: Callable[[str], None] | None = None,
    compute: Literal["paced", "real"] = "paced",
    listeners: Sequence[Listener] = (),
) -> Emulated:
    """Simulate a scenario's methods, then emulate them.

    The simulation comes first: it is the prediction, and the emulation finds the results of its training jobs, so that
    no training disturbs transfers. Jobs that only the emulation has (because a decision depends on time) are trained
    when they are needed, and the clock stands still meanwhile.

    Args:
        scenario: the scenario.
        out: the run directory of the emulation; that of the simulation is ``OUT-predicted``.
        methods: labels of the methods to run; all of them if not given.
        device: where training runs.
        train: ``False`` runs only devices and network, with placeholder numbers in place of training.
        dilation: real seconds for one second of the scenario; chosen by rule if not given.
        say: called with the reason of each dilation that was chosen.
        compute: ``paced``: local training takes the predicted seconds; ``real``: it takes the time of a process that
            trains under the CPU quota of the client's profile.
        listeners: follow all runs, the simulated ones first.

    Raises:
        UserError: the scenario cannot be emulated, or this machine cannot do it.
        EmulationFailed: a process, a link or a transfer failed.
    """
    if out.name in {"", ".."}:
        raise UserError("expected a folder with a name; choose another folder with --out", file=str(out))
    predicted = out.with_name(f"{out.name}-predicted")
    for path in (out, predicted):
        look_free(path, hint="choose another folder with --out")
    check_scenario(scenario)
    if compute == "real":
        check_real_training(scenario, 1.0 if dilation is None else dilation)
    found = check()
    if lack := missing(found, latencies=False):
        raise UserError(f"{lack} (all findings: edgefl emulate --check)")
    rates = cache(measured_rates)

    @contextmanager
    def testbed(setup: Setup, paths: SeedPaths) -> Iterator[Testbed]:
        wiring = wiring_of(setup, taking_part(setup, RunPaths(predicted).of(setup.label, setup.seed)))
        if lack := missing(found, latencies=any(link.latency for link in wiring.links)):
            raise UserError(lack)
        factor = dilation
        if factor is None:
            chosen = choose_dilation(wiring, settings_of(setup, 1.0), rates())
            factor = chosen.factor
            if say is not None:
                say(f"{setup.label}, seed {setup.seed}: {chosen}")
        before = processor_seconds()
        with ExitStack() as stack:
            laboratory = stack.enter_context(
                Laboratory(wiring, settings_of(setup, factor), folder=folder, seed=setup.seed)
            )
            trainers = None
            if compute == "real":
                plan = Plan(scenario, setup.label, setup.seed, setup.sizes.blocks)
                quotas = quotas_of(setup.fleet, factor)
                nodes, coordinator = laboratory.nodes, laboratory.coordinator
                trainers = stack.enter_context(
                    Trainers(plan, at_a_time(scenario), quotas, nodes=nodes, coordinator=coordinator)
                )
            made = Testbed(laboratory, dilation=factor, trainers=trainers)
            yield made
            write_emulation(_measured(made, setup, before), paths.emulation)

    with workplace() as folder:

        def once(out: Path, testbed: MakeTestbed | None, listeners: Sequence[Listener]) -> None:
            run(
                scenario,
                out=out,
                methods=methods,
                device=device,
                train=train,
                listeners=listeners,
                testbed=testbed,
                results=folder / "results",
            )

        once(predicted, None, listeners)
        once(out, testbed, listeners)
    return Emulated(out, predicted)


def check_scenario(scenario: Scenario) -> None:
    """Refuse what real links here cannot do.

    Raises:
        UserError: the option, and why.
    """
    transport = scenario.network.transport
    if transport.multicast:
        raise UserError("expected false: a TCP connection has one receiver", field="network.transport.multicast")
    if transport.loss:
        raise UserError("expected 0: the links of an emulation lose no packet", field="network.transport.loss")
    if transport.connection_limit is not None:
        raise UserError("expected null: an emulation limits links only", field="network.transport.connection_limit")


def taking_part(setup: Setup, predicted: SeedPaths) -> list[int]:
    """The clients that get a process: all of a small fleet, or those that took part in the simulation."""
    if setup.clients <= MOST_CLIENTS:
        return list(range(setup.clients))
    return sorted({event.client for event in read_events(predicted.events, {"transfer_start"}) if event.client >= 0})


def wiring_of(setup: Setup, chosen: Sequence[int]) -> Wiring:
    """The plan of a run's links to these clients.

    Raises:
        UserError: more nodes than can be emulated, or radio channels.
    """
    topology = GraphLinks(setup.topology) if isinstance(setup.topology, nx.Graph) else setup.topology
    clients = [f"client/{client}" for client in chosen]
    gates = ["server"] * len(clients)
    talks: list[Pair] = []
    if isinstance(setup.protocol, HierarchicalSpec):
        route = router(topology)
        gates = [route("server", client).nodes[-2] for client in clients]
        talks += [("server", cell) for cell in dict.fromkeys(gates)]
    talks += list(zip(gates, clients, strict=True))
    peaks: dict[Pair, float] = {}
    for direction in DIRECTIONS:
        highest = setup.capacity_changes.highest(direction).tolist()
        numbers = client_link_numbers(topology, setup.clients, direction)
        for number, rate in zip(numbers.tolist(), highest, strict=True):
            source, target = topology.ends(number)
            peaks[str(source), str(target)] = rate
    return plan_wiring(topology, talks, peaks=peaks)


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


def processor_seconds() -> tuple[float, float]:
    """The seconds for which all processors of this machine have worked, and for which they could have."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return float(sum(ticks) - idle), float(sum(ticks))


def _measured(testbed: Testbed, setup: Setup, before: tuple[float, float]) -> Emulation:
    clock = testbed.clock()
    after = processor_seconds()
    down = up = 0
    for (source, target), count in testbed.carried().items():
        if target.startswith("client/"):
            down += count
        if source.startswith("client/"):
            up += count
    late = [each / clock.dilation for each in clock.late] or [0.0]
    load = Load(
        cpu=min(1.0, (after[0] - before[0]) / max(after[1] - before[1], 1.0)),
        late_seconds_median=statistics.median(late),
        late_seconds_worst=max(late),
        paused_seconds=clock.paused / clock.dilation,
        paused_while_sending=clock.paused_while_sending / clock.dilation,
    )
    trust = [
        *doubts(load, seconds=clock.now, rounds=setup.rounds, dilation=clock.dilation),
        *testbed.doubts_of_training(),
    ]
    return Emulation(
        dilation=clock.dilation,
        compute="real" if testbed.trains else "paced",
        queue="fair" if setup.transport.queue is None else "fifo",
        trust=tuple(trust),
        wire_bytes=WireBytes(down=down, up=up),
        load=load,
        machine={"processors": os.cpu_count(), "kernel": platform.release()},
    )
