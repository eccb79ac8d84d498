"""``edgefl bench training``: engines against centralised training, and methods against FedAvg, in turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import Any, TypeVar, get_args

import torch

from edgefl.benchmarks.cases import CASES, TrainingCase
from edgefl.benchmarks.contenders import Turn, centralised, federated
from edgefl.benchmarks.peak_memory import peak_bytes, reset_peak
from edgefl.benchmarks.prediction import TOLERANCE, Predict, reason
from edgefl.cost.law import CostModel
from edgefl.data.federated import FederatedData, load_federated
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError, nearest
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.methods.precision import Precision
from edgefl.models.registry import MODELS, build_model
from edgefl.process_state import process_state_kept
from edgefl.profiling.measure_device.timing import clock_for
from edgefl.training import accelerator, processors
from edgefl.training.choice import check_precision, choose_engine, engines_on
from edgefl.training.core import TrainingCore
from edgefl.training.engine_spec import EngineSpec
from edgefl.training.matrix_units import multiplies_bfloat16
from edgefl.training.parallel.worker_pool import shared_pool

PRODUCTS = "batched, products"
"""The batched engine with convolutions as products; on a CPU it is measured if ``batched`` is requested."""

SAME, WHOLE = "centralised, same batch", "centralised, cohort's batch"

Contender = tuple[str, Precision]
"""An engine or a kind of centralised training, and its precision."""

Name = TypeVar("Name", bound=Hashable)


def known_case(name: str) -> TrainingCase:
    """The case called ``name``.

    Raises:
        UserError: unknown case.
    """
    if name not in CASES:
        raise UserError(f"unknown case '{name}'; {nearest(name, CASES)}", field="--case")
    return CASES[name]


def known_engines(names: Sequence[str], device: torch.device) -> list[str]:
    """The engines called ``names``.

    Raises:
        UserError: there is no such engine, or not on that device.
    """
    return [choose_engine(name, device) for name in names]


def known_precisions(names: Sequence[str], device: torch.device) -> list[Precision]:
    """The precisions called ``names``, each once.

    Raises:
        UserError: there is no such precision, or not on that device.
    """
    found: dict[Precision, None] = {}
    for name in names:
        if name not in get_args(Precision):
            raise UserError(f"unknown precision '{name}'; {nearest(name, get_args(Precision))}", file="--precision")
        check_precision(name, device)  # type: ignore[arg-type]
        found[name] = None  # type: ignore[index]
    return list(found)


def precisions_on(device: torch.device) -> tuple[Precision, ...]:
    """The precisions that are measured unless some are chosen: bfloat16 only where the device has kernels for it."""
    return ("float32", "bfloat16") if device.type == "cuda" or multiplies_bfloat16() else ("float32",)


@process_state_kept()
def bench_engines(
    case: TrainingCase,
    device: torch.device,
    engines: Sequence[str] | None = None,
    precisions: Sequence[Precision] = ("float32",),
) -> dict[str, Any]:
    """Images and local steps per second of each engine, and its ratios to centralised training in its precision.

    Args:
        case: the case to train.
        device: where training runs.
        engines: names of engines; those that run on the device if not given.
        precisions: the precisions of products; all contenders of all precisions take turns.
    """
    data, local = _data(case, device), _local(case)
    method = build_method("fedavg", local)
    model = build_model(MODELS[case.model](**case.options), case.shape, 10)
    names = list(engines_on(device) if engines is None else engines)
    cores: dict[Contender, TrainingCore] = {}
    turns: dict[Contender, Turn] = {}
    for precision in precisions:
        specs = {name: EngineSpec(kind=name, precision=precision) for name in names}
        if "batched" in names and (device.type != "cpu" or engines is not None):
            specs[PRODUCTS] = EngineSpec(kind="batched", precision=precision, convolutions="products")
        for name, spec in specs.items():
            core = cores[name, precision] = _core(case, data, spec)
            turns[name, precision] = federated(case, core, method)
        for name, batch in ((SAME, case.batch), (WHOLE, case.batch * case.cohort)):
            turns[name, precision] = centralised(case, data, model, method, batch, precision)
    if "parallel" in names and case.warm_up:
        shared_pool(processors.cores()).wait()  # the state after some seconds of training
    times, memory = in_turn(turns, case.turns, device, warm_up=case.warm_up)
    for core in cores.values():
        core.close()
    rows = [
        {
            "name": name,
            "precision": precision,
            "images_per_second": case.images / median(seconds),
            "local_steps_per_second": case.local_steps / median(seconds) if (name, precision) in cores else None,
            "to_centralised_same_batch": _ratio(times[SAME, precision], seconds),
            "to_centralised_cohorts_batch": _ratio(times[WHOLE, precision], seconds),
            "to_float32": _ratio(times[name, "float32"], seconds) if "float32" in precisions else None,
            "peak_bytes": memory[name, precision],
            "seconds_for_all_rounds": (
                case.rounds * median(seconds) if case.rounds and (name, precision) in cores else None
            ),
        }
        for (name, precision), seconds in times.items()
    ]
    return {
        "case": case.name, "cohort": case.cohort, "batch": case.batch, "steps": case.steps, "rounds": case.rounds,
        "rows": rows,
    }  # fmt: skip


@process_state_kept()
def bench_methods(
    case: TrainingCase, device: torch.device, names: Sequence[str], engine: str, predict: Predict | None
) -> list[dict[str, Any]]:
    """The ratio of each method's round time to FedAvg's, with the prediction from the operators.

    Work on one core is timed in processor seconds, which exclude the time of other programs.

    Args:
        case: the network and the cohort.
        device: where training runs.
        names: methods; methods that cannot train the network are skipped.
        engine: the engine that trains.
        predict: seconds of a local step by its operators; without it only the ratios of FLOPs and bytes are reported.
    """
    data, local = _data(case, device), _local(case)
    model = build_model(MODELS[case.model](**case.options), case.shape, 10)
    costs = CostModel(model)
    methods = {}
    for name in ("fedavg", *names):
        method = build_method(name, local)
        try:
            method.objective.adapt(model)
        except UserError:
            continue
        methods[name] = method
    steps = {name: costs.cost(m, m.objective.adapt(model).depth, case.batch) for name, m in methods.items()}
    with _core(case, data, engine) as core:
        turns = {name: federated(case, core, method) for name, method in methods.items()}
        one_core = device.type == "cpu" and engine == "sequential"
        times, _ = in_turn(turns, case.turns, device, clock_for(1) if one_core else perf_counter)
    reference = steps["fedavg"]
    rows: list[dict[str, Any]] = []
    for name, method in methods.items():
        if name == "fedavg":
            continue
        measured = _ratio(times[name], times["fedavg"])
        predicted = predict and predict(steps[name].operators) / predict(reference.operators)
        far = predicted is not None and abs(measured / predicted - 1) > TOLERANCE
        rows.append(
            {
                "method": name,
                "measured": measured,
                "predicted": predicted,
                "off": None if predicted is None else measured / predicted - 1,
                "by_flops": steps[name].training_flops / reference.training_flops,
                "by_bytes": steps[name].bytes_touched / reference.bytes_touched,
                "reason": reason(method, methods["fedavg"], model, case.batch, predict) if predict and far else None,
            }
        )
    return rows


def in_turn(
    turns: Mapping[Name, Turn],
    repeats: int,
    device: torch.device,
    clock: Callable[[], float] = perf_counter,
    warm_up: float = 0.0,
) -> tuple[dict[Name, list[float]], dict[Name, int]]:
    """Seconds of each contender's turns; the contenders alternate, after warm-up turns that do not count.

    Each contender finds the caches and threads as its predecessor left them, so the order varies, see :func:`orders`.

    Args:
        turns: the contenders' functions.
        repeats: turns of each that count.
        device: where training runs.
        clock: returns seconds.
        warm_up: minimum seconds of the warm-up turns; there is at least one.

    Returns:
        The seconds, and the peak bytes during the turns: of the accelerator's memory, or of the whole process.
    """
    times: dict[Name, list[float]] = {name: [] for name in turns}
    memory: dict[Name, int] = {}
    for turn in turns.values():
        end = perf_counter() + warm_up
        turn()
        while perf_counter() < end:
            turn()
    names = list(turns)
    for order in islice(cycle(orders(len(names))), repeats):
        for name in (names[place] for place in order):
            turn = turns[name]
            reset_peak(device)
            accelerator.wait_for(device)
            start = clock()
            turn()
            accelerator.wait_for(device)
            times[name].append(clock() - start)
            memory[name] = max(memory.get(name, 0), peak_bytes(device))
    return times, memory


def orders(count: int) -> list[list[int]]:
    """Orders of ``count`` contenders in which each follows every other one equally often (E. J. Williams, 1949).

    Args:
        count: the number of contenders.

    Returns:
        ``count`` permutations of their places, or twice as many if ``count`` is odd and greater than 1.

    >>> orders(4)
    [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]]
    """
    zigzag = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(count)]
    square = [[(shift + step) % count for step in zigzag] for shift in range(count)]
    return square if count % 2 == 0 or count == 1 else square + [order[::-1] for order in square]


def _ratio(slower: Sequence[float], faster: Sequence[float]) -> float:
    """The median of the ratios of turns close to each other: a temporary slowdown of the machine affects both."""
    return median(one / other for one, other in zip(slower, faster, strict=True))


def _data(case: TrainingCase, device: torch.device) -> FederatedData:
    images = case.clients * case.batch * case.steps
    spec = Synthetic(clients=case.clients, shape=case.shape, classes=10, train=images, test_images=100)
    return load_federated(spec, 0, device)


def _local(case: TrainingCase) -> LocalOptions:
    return LocalOptions(steps=case.steps, batch=case.batch, lr=0.01, weight_decay=1e-3, clip_norm=10)


def _core(case: TrainingCase, data: FederatedData, engine: EngineSpec | str) -> TrainingCore:
    return TrainingCore.of(data, MODELS[case.model](**case.options), 0, engine=engine)
