"""Real training steps on this machine, timed: what a device profile of it is fitted to, and checked on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from edgefl.learning.cost.measure import Operator, measure
from edgefl.learning.local_step import local_step
from edgefl.learning.methods.build import build_method
from edgefl.learning.methods.recipe import Method
from edgefl.learning.models.block_model import BlockModel
from edgefl.learning.models.registry import MODELS, build_model
from edgefl.learning.objectives.base import Batch, Context
from edgefl.learning.rules.base import LocalOptions
from edgefl.randomness import generator, integer_seed

SHAPE, CLASSES = (3, 32, 32), 10


@dataclass(frozen=True, slots=True)
class Case:
    """A training step by name: a model, a method, a batch size."""

    model: str
    method: str
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.method}, batch {self.batch}"


CALIBRATION = (
    Case("cnn", "fedavg", 8),
    Case("cnn", "fedavg", 64),
    Case("cnn", "fedprox", 32),
    Case("resnet18", "fedavg", 2),
    Case("resnet18", "fedprox", 8),
    Case("squeezenet", "fedavg", 4),
    Case("squeezenet", "fedprox", 16),
    Case("mobilenet_v2", "fedavg", 4),
    Case("mobilenet_v2", "fedprox", 16),
)
"""What the roofline is fitted to: wide and narrow convolutions, depthwise ones, small steps and large."""

HELD_OUT = (
    Case("fedadc_cnn", "moon", 16),
    Case("fedadc_cnn", "fedmlb", 8),
    Case("vgg9", "ntd", 4),
    Case("vgg9", "feddyn", 16),
    Case("resnet56", "moon", 4),
    Case("resnet56", "ntd", 16),
    Case("shufflenet", "feddyn", 8),
    Case("shufflenet", "ntd", 32),
)
"""What it is checked on: no model family and no method of these is in :data:`CALIBRATION`."""


@dataclass(frozen=True)
class TimedStep:
    """A case, what it executes, and how long it took.

    Attributes:
        case: which step.
        operators: what the cost model says that it executes.
        seconds: the lower quartile of the repetitions: other work on the machine only ever adds to a step.
        spread: the upper over the lower quartile.
        repetitions: how many there were.
    """

    case: Case
    operators: tuple[Operator, ...]
    seconds: float
    spread: float
    repetitions: int


def time_steps(cases: Sequence[Case], *, seconds: float, threads: int) -> Iterator[TimedStep]:
    """Run each case for about ``seconds``, at least five times after one to warm up, on ``threads`` threads.

    One thread is timed by the processor's own seconds, which leave out those in which other programs had it.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    for case in cases:
        model = build_model(MODELS[case.model](), SHAPE, CLASSES)
        method = build_method(case.method, LocalOptions())
        adapted = method.objective.adapt(model)
        operators = measure(adapted, method, adapted.depth, case.batch).operators
        with _threads(threads):
            times = _repeat(adapted, method, case.batch, seconds, clock)
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        yield TimedStep(case, operators, low, high / low, len(times))


def matmul_flops_per_second(*, threads: int, side: int = 768, repetitions: int = 8) -> float:
    """FLOP/s of the fastest of some products of square fp32 matrices: about the processor's peak."""
    first, second = torch.ones(side, side), torch.ones(side, side)
    best = 0.0
    with _threads(threads):
        for _ in range(repetitions):
            start = time.perf_counter()
            first @ second
            best = max(best, 2 * side**3 / (time.perf_counter() - start))
    return best


def _repeat(model: BlockModel, method: Method, batch: int, seconds: float, clock: Callable[[], float]) -> list[float]:
    layout, objective, rule = model.layout, method.objective, method.rule
    source = torch.Generator().manual_seed(integer_seed(0, "calibration"))

    def numbers(*shape: int) -> torch.Tensor:
        return 0.05 * torch.randn(shape, generator=source)

    parameters, buffers = numbers(layout.parameter_count), torch.ones(layout.buffer_count)
    vectors = {name: numbers(layout.parameter_count) for name in sorted(objective.vectors | rule.vectors)}
    context = Context(
        model=model,
        frozen={
            name: layout.weights(vectors.get(name, parameters).clone(), buffers.clone())
            for name in sorted(objective.frozen)
        },
        vectors={name: vectors[name] for name in sorted(objective.vectors)},
        client={name: torch.ones(model.classes) for name in sorted(objective.client)},
        alpha=model.depth,
        draws=objective.draw(generator(0, "cost"), batch),
    )
    images = Batch(numbers(batch, *model.sample_shape), torch.arange(batch) % model.classes)
    memory = rule.begin(parameters, {name: vectors[name] for name in sorted(rule.vectors)}, method.local, 1)
    times: list[float] = []
    while len(times) < 6 or sum(times) < seconds:
        start = clock()
        # A learning rate of 0 leaves the numbers as they are: values that grow or vanish would change the speed.
        parameters, _ = local_step(objective, rule, parameters, buffers, images, context, memory, method.local, 0.0)
        times.append(clock() - start)
    return times[1:]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
