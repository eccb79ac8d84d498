"""Engines against plain centralised training, in turn in one process: ``python tests/benchmarks/training.py --help``.

Centralised training is tuned: channels-last, fused optimiser, all cores. It runs once with the clients' batch size and
once with the whole cohort's batch.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import count, cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from edgefl.data.batches import fetch
from edgefl.data.federated import FederatedData, load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.experiment import run
from edgefl.hardware import cores as available_cores
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import MODELS, build_model
from edgefl.record.events import Listener
from edgefl.record.summary import SeedResult
from edgefl.scenario import load_scenario
from edgefl.torch_settings import Precision, computing
from edgefl.training import accelerator
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import (
    ENGINES,
    EngineSpec,
    check_precision,
    choose_device,
    choose_engine,
    exact_arithmetic,
    multiplies_bfloat16,
)
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.parallel.worker_pool import shared_pool


def engines_on(device: torch.device) -> list[str]:
    """The engines that run on a device of this machine."""
    return [name for name, entry in ENGINES if not entry.elsewhere and device.type in entry.devices]


@dataclass(frozen=True)
class Case:
    """One network and one cohort on made-up images.

    Attributes:
        model, options: the network, as in a scenario.
        shape: channels, height and width of an image.
        cohort: clients in each round, of ``clients``.
        batch: images in a minibatch.
        steps: local steps in each round.
        turns: how many times every contender is measured.
        warm_up: seconds of turns before the measured ones, so that an engine reaches a steady state.
        rounds: rounds of the whole job that the case stands for, of which only a few are measured; ``None``: none.
    """

    model: str
    shape: tuple[int, int, int]
    cohort: int
    batch: int
    steps: int
    clients: int
    turns: int = 5
    warm_up: float = 1.0
    rounds: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def images(self) -> int:
        """Images that a round trains on."""
        return self.cohort * self.batch * self.steps

    @property
    def local(self) -> LocalOptions:
        """The options of local training."""
        return LocalOptions(steps=self.steps, batch=self.batch, lr=0.01, weight_decay=1e-3, clip_norm=10)

    def data(self, device: torch.device) -> FederatedData:
        """The images."""
        images = self.clients * self.batch * self.steps
        spec = Synthetic(clients=self.clients, shape=self.shape, classes=10, train=images, test_images=100)
        return load_federated(spec, 0, device)

    def core(self, data: FederatedData, engine: EngineSpec | str) -> TrainingCore:
        """The engine, with the network."""
        return TrainingCore.of(data, MODELS[self.model](**self.options), 0, engine=engine)

    def quick(self) -> Case:
        """The same case at a small size, to check that it runs; its figures are not meaningful."""
        small = {name: min(getattr(self, name), most) for name, most in (("cohort", 4), ("batch", 10), ("steps", 2))}
        return replace(self, **small, clients=4, turns=2, warm_up=0)


_COLOUR = (3, 32, 32)

CASES = {
    "cnn": Case("cnn", (1, 28, 28), cohort=10, batch=32, steps=10, clients=10, turns=10),
    # 1,000 users with 50 images each, one local epoch: 1,500 rounds are 375,000 local steps.
    "pfl-cifar10": Case(
        "cnn", _COLOUR, cohort=50, batch=10, steps=5, clients=1000, turns=3, rounds=1500, options={"width": 32}
    ),
    "fedadc_cnn": Case("fedadc_cnn", _COLOUR, cohort=4, batch=50, steps=2, clients=4, turns=3),
    **{
        name: Case(name, _COLOUR, cohort=10, batch=50, steps=1, clients=10, turns=2)
        for name in ("resnet18", "mobilenet_v2", "resnet56")
    },
}
if find_spec("timm"):
    _TIMM = {"timm": "vit_tiny_patch16_224", "args": {"img_size": 32, "patch_size": 4}}
    CASES["vit_tiny"] = Case("timm", _COLOUR, cohort=10, batch=50, steps=1, clients=10, turns=2, options=_TIMM)
"""The cases by name, from the cheapest to the most expensive."""

SAME, WHOLE = "centralised, same batch", "centralised, cohort's batch"

Contender = tuple[str, Precision]
"""An engine or a kind of centralised training, and its precision."""

Turn = Callable[[], None]
"""Does the work of one round."""


def bench_engines(
    name: str,
    case: Case,
    device: torch.device,
    engines: Sequence[str] | None = None,
    precisions: Sequence[Precision] = ("float32",),
) -> dict[str, Any]:
    """Images and local steps per second of each engine, and its ratios to centralised training in its precision."""
    data, method = case.data(device), build_method("fedavg", case.local)
    model = build_model(MODELS[case.model](**case.options), case.shape, 10)
    names = list(engines_on(device) if engines is None else engines)
    cores: dict[Contender, TrainingCore] = {}
    turns: dict[Contender, Turn] = {}
    for precision in precisions:
        specs = {engine: EngineSpec(kind=engine, precision=precision) for engine in names}
        for engine, spec in specs.items():
            core = cores[engine, precision] = case.core(data, spec)
            turns[engine, precision] = federated(case, core, method)
        for baseline, batch in ((SAME, case.batch), (WHOLE, case.batch * case.cohort)):
            turns[baseline, precision] = centralised(case, data, model, method, batch, precision)
    if "parallel" in names and case.warm_up:
        shared_pool(available_cores())._first.result()  # the state after some seconds of training
    times, memory = in_turn(turns, case.turns, device, case.warm_up)
    for core in cores.values():
        core.close()
    rows = []
    for (contender, precision), seconds in times.items():
        is_engine = (contender, precision) in cores
        rows.append(
            {
                "name": contender,
                "precision": precision,
                "images_per_second": case.images / median(seconds),
                "local_steps_per_second": case.cohort * case.steps / median(seconds) if is_engine else None,
                "to_centralised_same_batch": _ratio(times[SAME, precision], seconds),
                "to_centralised_cohorts_batch": _ratio(times[WHOLE, precision], seconds),
                "to_float32": _ratio(times[contender, "float32"], seconds) if "float32" in precisions else None,
                "peak_bytes": memory[contender, precision],
                "seconds_for_all_rounds": case.rounds * median(seconds) if case.rounds and is_engine else None,
            }
        )
    sizes = {"cohort": case.cohort, "batch": case.batch, "steps": case.steps, "rounds": case.rounds}
    return {"case": name, **sizes, "rows": rows}


def federated(case: Case, core: TrainingCore, method: Method) -> Turn:
    """Rounds of a method through the core's engine, aggregation included, each with the next cohort."""
    learner = core.learner(method)
    depth = method.objective.adapt(core.model).depth
    last: dict[int, JobId] = {}
    rounds = count()

    def turn() -> None:
        round = next(rounds)
        ids = []
        for place in range(case.cohort):
            client = (round * case.cohort + place) % case.clients
            id = JobId(method.label, 0, client, round)
            previous = last.get(client) if method.state is not None else None
            learner.submit(TrainingJob(id, round, round, depth, case.steps, previous))
            last[client] = id
            ids.append(id)
        learner.aggregate(round, ids, round)

    return turn


def centralised(
    case: Case, data: FederatedData, model: BlockModel, method: Method, batch: int, precision: Precision = "float32"
) -> Turn:
    """The same number of images in one plain training loop, with ``torch.optim.SGD``, channels-last, on all cores.

    On an accelerator it has the settings of the engines: deterministic kernels and float32 products.
    """
    net, local = copy.deepcopy(model).to(data.train.device), method.local
    net.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(
        net.parameters(), lr=local.lr, momentum=local.momentum, weight_decay=local.weight_decay, fused=True
    )
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(data.train))).to(data.train.device)
    starts = cycle(range(0, len(order) - batch + 1, batch))

    def turn() -> None:
        with exact_arithmetic(data.train.device), all_cores():
            for _ in range(case.images // batch):
                start = next(starts)
                _step(net, optimiser, data, order[start : start + batch], local.clip_norm, precision)

    return turn


def _step(
    net: BlockModel,
    optimiser: torch.optim.Optimizer,
    data: FederatedData,
    places: Tensor,
    clip_norm: float | None,
    precision: Precision,
) -> None:
    images = fetch(data.train, places)
    optimiser.zero_grad()
    with computing(precision, places.device):
        loss = F.cross_entropy(net(images.inputs), images.labels)
    torch.autograd.backward(loss)
    if clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm, foreach=True)
    optimiser.step()


@contextmanager
def all_cores() -> Iterator[None]:
    """Run the block with as many intra-op threads as there are cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(available_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_turn(
    turns: Mapping[Contender, Turn], repeats: int, device: torch.device, warm_up: float = 0.0
) -> tuple[dict[Contender, list[float]], dict[Contender, int]]:
    """Seconds of each contender's turns, and the peak bytes during them; at least one turn before does not count.

    Each contender finds the caches and threads as its predecessor left them, so the order varies, see :func:`orders`.
    """
    times: dict[Contender, list[float]] = {name: [] for name in turns}
    memory = dict.fromkeys(turns, 0)
    for turn in turns.values():
        end = perf_counter() + warm_up
        turn()
        while perf_counter() < end:
            turn()
    names = list(turns)
    for order in islice(cycle(orders(len(names))), repeats):
        for name in (names[place] for place in order):
            reset_peak(device)
            accelerator.wait_for(device)
            start = perf_counter()
            turns[name]()
            accelerator.wait_for(device)
            times[name].append(perf_counter() - start)
            memory[name] = max(memory[name], peak_bytes(device))
    return times, memory


def orders(count: int) -> list[list[int]]:
    """Orders of ``count`` contenders in which each follows every other one equally often (E. J. Williams, 1949).

    >>> orders(4)
    [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]]
    """
    zigzag = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(count)]
    square = [[(shift + step) % count for step in zigzag] for shift in range(count)]
    return square if count % 2 == 0 or count == 1 else square + [order[::-1] for order in square]


def _ratio(slower: Sequence[float], faster: Sequence[float]) -> float:
    """The median of the ratios of turns close to each other: a temporary slowdown of the machine affects both."""
    return median(one / other for one, other in zip(slower, faster, strict=True))


def reset_peak(device: torch.device) -> None:
    """Reset the peak if the system supports it: for an accelerator's memory, and for a process's memory on Linux."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """The peak bytes since :func:`reset_peak`; on Linux with the private memory of child processes at this moment."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = _kilobytes(Path("/proc/self/status"), "VmHWM:")
    for children in Path("/proc/self/task").glob("*/children"):
        for process in children.read_text(encoding="ascii").split():
            with suppress(OSError):  # it has ended
                peak += _kilobytes(Path("/proc", process, "smaps_rollup"), "Private_")
    return 1024 * peak


def _kilobytes(file: Path, name: str) -> int:
    return sum(int(line.split()[1]) for line in file.read_text(encoding="ascii").splitlines() if line.startswith(name))


class Timed(Listener):
    """The wall-clock seconds of each run."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def run_began(self, label: str, seed: int) -> None:
        """Note the time."""
        self._now = label, perf_counter()

    def run_ended(self, result: SeedResult) -> None:
        """Add a row."""
        label, began = self._now
        seconds = perf_counter() - began
        self.rows.append({"method": label, "seed": result.seed, "rounds": result.rounds, "seconds": seconds})


def bench_scenario(name: str, device: str, *, quick: bool = False) -> list[dict[str, Any]]:
    """The wall-clock of each method and seed of a scenario, simulation and files included; nothing is cached."""
    timed = Timed()
    scenario = load_scenario(name, {"stop": "rounds", "training.rounds": 2} if quick else {"stop": "rounds"})
    with tempfile.TemporaryDirectory() as folder:
        run(scenario, out=Path(folder) / "run", device=device, listeners=[timed])
    return timed.rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    many = {"action": "append", "metavar": "NAME"}
    parser.add_argument("--case", choices=CASES, help="only this case; repeatable", **many)
    parser.add_argument("--engine", help="only this engine; repeatable", **many)
    parser.add_argument("--precision", choices=get_args(Precision), help="repeatable", **many)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--scenario", metavar="NAME", help="only time whole runs of this scenario's methods")
    parser.add_argument("--quick", action="store_true", help="a short run that checks that everything works")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if given.scenario is not None:
        rows = bench_scenario(given.scenario, given.device, quick=given.quick)
        found: dict[str, Any] = {"scenario": given.scenario, "runs": rows}
        if not given.json:
            print_rows(given.scenario, rows)
    else:
        device = choose_device(given.device)
        try:
            engines = given.engine and [choose_engine(name, device) for name in given.engine]
            for name in given.precision or ():
                check_precision(name, device)
        except UserError as error:
            parser.error(str(error))
        both = device.type == "cuda" or multiplies_bfloat16()
        precisions = given.precision or (("float32", "bfloat16") if both else ("float32",))
        found = {"device": device.type, "cases": []}
        for name in given.case or CASES:
            case = CASES[name].quick() if given.quick else CASES[name]
            found["cases"].append(bench_engines(name, case, device, engines, precisions))
            if not given.json:
                title = f"{name}: cohort {case.cohort} x batch {case.batch}, local steps: {case.steps}"
                print_rows(title, found["cases"][-1]["rows"])
    if given.json:
        print(json.dumps(found, indent=2))


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows of figures as a table."""
    print(title)
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else value


if __name__ == "__main__":
    main()
