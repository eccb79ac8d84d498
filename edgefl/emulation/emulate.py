"""Runs a scenario simulated and emulated, with the same training; a dilation makes real links slow enough to carry."""

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from edgefl.emulation.machine import check, missing
from edgefl.emulation.real_links import made_links
from edgefl.emulation.routing import Routing
from edgefl.emulation.shaping import PAYLOAD_BYTES
from edgefl.emulation.testbed import Testbed
from edgefl.emulation.trainers import Plan, check_real_training, quotas_of, started_trainers
from edgefl.emulation.wiring import LinkSettings, Pair, Wiring, plan_wiring
from edgefl.errors import UserError
from edgefl.experiment import look_free, run
from edgefl.experiment.one_run import MakeTestbed
from edgefl.fleet import assign
from edgefl.models.layout import content_of
from edgefl.network.capacities.base import DIRECTIONS
from edgefl.network.topology import GraphLinks, Topology, router
from edgefl.network.tree import build_topology
from edgefl.record.emulation import write_emulation
from edgefl.record.events import Listener
from edgefl.record.paths import RunPaths, SeedPaths
from edgefl.record.tables import read_events
from edgefl.report.prediction.gaps import has_one_queue
from edgefl.report.run_result import RunResult
from edgefl.rerun.replay import write_sensitivity
from edgefl.scenario import Scenario
from edgefl.simulation.protocols.base import ProtocolSpec
from edgefl.simulation.setup import Setup
from edgefl.training.engine_spec import Engine, EngineInputs
from edgefl.training.job import Evaluation
from edgefl.training.job_task import JobResult, JobTask, split

RANDOM_BYTES = 1 << 20
"""Size of the content of transfers where no model is trained."""

MOST_CLIENTS = 100
"""Up to this number all clients of a fleet get a process; of a larger fleet those that take part in the simulation."""


def check_scenario(scenario: Scenario) -> None:
    """Raise UserError, with the option and the reason, for what real links here cannot do."""
    transport = scenario.network.transport
    if transport.multicast:
        raise UserError("expected false: a TCP connection has one receiver", field="network.transport.multicast")
    if transport.connection_limit is not None:
        raise UserError("expected null: an emulation limits links only", field="network.transport.connection_limit")
    if getattr(scenario.network.topology, "sharing", "wired") != "wired":
        raise UserError("expected wired: an emulation has no radio channels", field="network.topology.sharing")
    if scenario.training.bandwidth.name != "equal":
        message = f"expected equal: real connections share links as TCP does, found {scenario.training.bandwidth.name}"
        raise UserError(message, field="training.bandwidth.kind")
    clients, network = scenario.data.clients, scenario.network
    if clients <= MOST_CLIENTS:
        fleet = assign(scenario.fleet, clients, scenario.seeds[0])
        topology = build_topology(network.topology, network.links, [str(name) for name in fleet.link_names()])
        plan_wiring(topology, _talks(topology, scenario.protocol, range(clients), clients, scenario.seeds[0]))


def taking_part(setup: Setup, predicted: SeedPaths) -> list[int]:
    """All clients of a small fleet, else those that took part in the simulation."""
    if setup.clients <= MOST_CLIENTS:
        return list(range(setup.clients))
    return sorted({event.client for event in read_events(predicted.events, {"transfer_start"}) if event.client >= 0})


def carried_content(predicted: SeedPaths) -> bytes:
    """What transfers carry: the simulated run's last model (safetensors), or random bytes where it has none."""
    file = predicted.final_model
    return file.read_bytes() if file.is_file() else np.random.default_rng(0).bytes(RANDOM_BYTES)


def wiring_of(setup: Setup, chosen: Sequence[int]) -> Wiring:
    """The plan of a run's links; UserError for nodes that cannot be emulated, by their number or a name."""
    topology = GraphLinks(setup.topology) if isinstance(setup.topology, nx.Graph) else setup.topology
    peaks: dict[Pair, float] = {}
    for direction in DIRECTIONS:
        highest = setup.capacity_changes.highest(direction).tolist()
        numbers = topology.client_links(setup.clients, up=direction == "up")
        for number, rate in zip(numbers.tolist(), highest, strict=True):
            source, target = topology.ends(number)
            peaks[str(source), str(target)] = rate
    talks = _talks(topology, setup.protocol, chosen, setup.clients, setup.seed)
    return plan_wiring(topology, talks, peaks=peaks)


def _talks(topology: Topology, protocol: ProtocolSpec, chosen: Sequence[int], count: int, seed: int) -> list[Pair]:
    if (pairs := protocol.pairs(count, seed)) is not None:
        present = set(chosen)
        return [(f"client/{one}", f"client/{other}") for one, other in pairs if {one, other} <= present]
    clients = [f"client/{client}" for client in chosen]
    gates, cells = ["server"] * len(clients), list[Pair]()
    if protocol.averages_in_cells:
        route = router(topology)
        gates = [str(route("server", client).nodes[-2]) for client in clients]
        cells = [("server", cell) for cell in dict.fromkeys(gates)]
    return [*cells, *zip(gates, clients, strict=True)]


def settings_of(setup: Setup, dilation: float) -> LinkSettings:
    """How a run's links queue and its connections begin, from the scenario's transport."""
    transport, tcp = setup.transport, setup.transport.tcp
    queue: Literal["fair", "fifo"] = "fair" if transport.queue is None else "fifo"
    initial = None if tcp is None or tcp.initial_window is None else round(tcp.initial_window)
    return LinkSettings(dilation, transport.efficiency, queue, initial)


class Emulated(NamedTuple):
    """Two run directories."""

    measured: Path
    predicted: Path


def emulate(
    scenario: Scenario,  # may also have methods that are not run
    *,
    out: Path,  # the run directory of the emulation; that of the simulation is OUT-predicted
    methods: Sequence[str] | None = None,  # labels of the methods to run; all of them if not given
    device: str = "auto",  # where training runs
    train: bool = True,  # False runs only devices and network, with placeholder numbers in place of training
    dilation: float | None = None,  # real seconds for one second of the scenario; chosen by rule if not given
    # called with the part that begins, the reason of each dilation that was chosen, and why there is no band over
    # queue draws
    say: Callable[[str], None] = lambda _: None,
    # paced: local training takes the predicted seconds; real: it takes the time of a process that trains under the
    # CPU quota of the client's profile
    compute: Literal["paced", "real"] = "paced",
    listeners: Sequence[Listener] = (),  # follow all runs, the simulated ones first
) -> Emulated:
    """Simulate a scenario's methods, then emulate them; raises EmulationFailed if a process, a link or a transfer does.

    The simulation is the prediction, and has the results of training, so that none disturbs transfers; jobs that only
    the emulation has are trained while the clock stands still. With ``queue: fifo`` the simulation is timed again with
    other draws of the shares (``sensitivity.parquet``), for the band of a comparison.
    """
    predicted = free_folder_of_prediction(out)
    with temporary_folder() as folder:
        testbed = _testbeds(scenario, folder, predicted, dilation=dilation, compute=compute, say=say)
        remember = partial(RememberingEngine, folder / "results")
        both = partial(
            run, scenario, methods=methods, device=device, train=train, listeners=listeners, wrapper=remember
        )
        say("simulation:")
        both(out=predicted)
        say("emulation:")
        both(out=out, testbed=testbed)
    simulated = RunResult(predicted)
    if has_one_queue(simulated):  # time the simulation again with other shares
        try:
            write_sensitivity(predicted, untrained=not simulated.trained)
        except UserError as error:
            say(f"no band over draws of the shares in queues: {error.message}")
    return Emulated(out, predicted)


def free_folder_of_prediction(out: Path) -> Path:
    """The folder of the simulation of an emulation in ``out``; UserError if one of both is not free."""
    predicted = out.with_name(f"{out.name}-predicted") if out.name else out / "-predicted"
    for path in (out, predicted):
        look_free(path, hint="choose another folder with --out")
    return predicted


def _testbeds(
    scenario: Scenario,
    folder: Path,
    predicted: Path,
    *,
    dilation: float | None,
    compute: Literal["paced", "real"],
    say: Callable[[str], None],
) -> MakeTestbed:
    """Make the real links of each run; UserError if the scenario cannot be emulated, or not by this machine."""
    check_scenario(scenario)
    if compute == "real":
        check_real_training(scenario, 1.0 if dilation is None else dilation)
    found = check()
    if lack := missing(found):
        raise UserError(f"{lack} (all findings: edgefl emulate --check)")
    carried = assumed_rates(netem=any(each.what == "netem" and each.works for each in found))

    @contextmanager
    def testbed(setup: Setup, paths: SeedPaths) -> Iterator[Testbed]:
        simulated = RunPaths(predicted).of(setup.label, setup.seed)
        wiring = wiring_of(setup, taking_part(setup, simulated))
        factor = dilation
        if factor is None:
            factor, why = choose_dilation(wiring, settings_of(setup, 1.0), carried)
            say(f"{setup.label}, seed {setup.seed}: {why}")
        with ExitStack() as stack:
            real_links = stack.enter_context(
                made_links(wiring, settings_of(setup, factor), folder=folder, content=carried_content(simulated))
            )
            trainers = None
            if compute == "real":
                plan = Plan(scenario, setup.label, setup.seed, setup.sizes.blocks)
                quotas, at_a_time = quotas_of(setup.fleet, factor), setup.protocol.under_way(setup.cohort)
                trainers = stack.enter_context(started_trainers(plan, at_a_time, quotas, real_links.nodes))
            made = Testbed(real_links, dilation=factor, trainers=trainers)
            yield made
            write_emulation(made.measured(setup), paths.emulation)

    return testbed


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new temporary folder; first, those that killed processes of this user have left behind are removed."""
    place = Path(tempfile.gettempdir())
    for folder in place.glob("edgefl-emulation-*-*"):
        pid = folder.name.split("-")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"edgefl-emulation-{os.getpid()}-") as name:
        yield Path(name)


class RememberingEngine:
    """An engine that trains no job twice, and keeps results in ``folder``; only for bit-identical engines."""

    def __init__(self, folder: Path, engine: Engine, given: EngineInputs, seed: int) -> None:
        self._engine, self._folder = engine, folder / str(seed)
        self._model, self._device = repr(given.model), given.device
        self._folder.mkdir(parents=True, exist_ok=True)

    def train(self, tasks: Sequence[JobTask]) -> list[JobResult]:
        contents: dict[int, str] = {}
        files = [self._file(_described(task, contents)) for task in tasks]
        missing = [place for place, file in enumerate(files) if not file.exists()]
        for place, result in zip(missing, self._engine.train([tasks[place] for place in missing]), strict=True):
            kept = dict(result.kept)
            torch.save((result.final, result.cross_entropies, result.batch_sizes, kept), files[place])
        return [JobResult(*torch.load(file, map_location=self._device)) for file in files]

    def evaluate(self, vector: Tensor, mode: Mapping[str, Any]) -> Evaluation:
        file = self._file(f"evaluation {content_of(vector)} {sorted(mode.items())}")
        if not file.exists():
            torch.save(tuple(self._engine.evaluate(vector, mode)), file)
        return Evaluation(*torch.load(file))

    def close(self) -> None:
        self._engine.close()

    def _file(self, described: str) -> Path:
        return self._folder / hashlib.blake2b(f"{self._model} {described}".encode(), digest_size=20).hexdigest()


def _described(task: JobTask, contents: dict[int, str]) -> str:
    """All inputs that determine a job's result; ``contents`` has those of tensors seen before, by ``id``."""
    bare, tensors = split(task)
    for tensor in tensors.values():
        if id(tensor) not in contents:
            contents[id(tensor)] = content_of(tensor)
    named = sorted((name, contents[id(tensor)]) for name, tensor in tensors.items())
    return f"{replace(bare, method='', round=0)!r} {named}"  # label and round are used in messages only


USED_PART = 0.5
"""The part of the packet rates that may be used: the processes at the nodes need processors too."""
ACKNOWLEDGEMENTS = 0.5
"""Acknowledgements for each packet with data; a receiver answers at least every second packet."""

DELAYED, LINKS = 30_000.0, 100_000.0
"""Packets a second that the process which delays packets carries, and those that the kernel carries per processor."""


class PacketRates(NamedTuple):
    """Packets a second, with their acknowledgements."""

    delayed: float  # those that the process which delays packets carries
    links: float  # those that the kernel carries, over all links: each packet counts on each link


def choose_dilation(wiring: Wiring, settings: LinkSettings, carried: PacketRates) -> tuple[float, str]:
    """The least of 1, 2, 5, 10, 20, 50, … at which the links need at most half of what is carried, and why."""
    for factor in (float(first * 10**power) for power in count() for first in (1, 2, 5)):
        needed = packet_rates(wiring, replace(settings, dilation=factor))
        if all(need <= USED_PART * rate for need, rate in zip(needed, carried, strict=True)):
            break
    return factor, (
        f"dilation {factor:g}: {needed.links:,.0f} packets/s cross the links (this machine carries"
        f" {carried.links:,.0f}), and {needed.delayed:,.0f} have a latency (this machine delays"
        f" {carried.delayed:,.0f}); at most {100 * USED_PART:.0f} % of each may be used"
    )


def packet_rates(wiring: Wiring, settings: LinkSettings) -> PacketRates:
    """The packets a real second if all nodes transfer at once, with equal shares of each link's peak capacity."""
    routing, delayed, links = Routing(wiring, settings), 0.0, 0.0
    for pair, route in wiring.routes.items():
        rate = min(link.peak / len(link.pairs) for link in route)
        if math.isinf(rate):
            raise UserError(f"no link from {pair[0]} to {pair[1]} has a finite capacity, so no dilation is enough")
        packets = rate * settings.efficiency / settings.dilation / 8.0 / PAYLOAD_BYTES
        links += packets * len(route) * (1.0 + ACKNOWLEDGEMENTS)
        if any(link.latency for link in route):
            # The process that delays packets handles what a sender hands over as one at once; queues split it.
            delayed += packets * (1.0 / routing.segments(pair[0]) + ACKNOWLEDGEMENTS)
    return PacketRates(delayed, links)


def assumed_rates(*, netem: bool) -> PacketRates:
    """Packets a second that this machine carries, if the kernel (netem) does not delay them: a small processor's."""
    return PacketRates(math.inf if netem else DELAYED, LINKS * (os.cpu_count() or 1))
