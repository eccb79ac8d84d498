"""The cost of one local step of a method, measured by running it on tensors without data."""

import random
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from traceback import walk_tb
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from edgefl.cost.data_dependence import NEEDS_DATA, DataDependentError, whose
from edgefl.cost.recorder import Record, Recorder
from edgefl.errors import UserError
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule, Trained, local_step
from edgefl.methods.parts.objective import Batch, Context, Objective
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Frozen, Layout, Weights
from edgefl.models.mode import using
from edgefl.models.norm import is_refusal
from edgefl.randomness import generator

NOWHERE = torch.device("meta")
"""Tensors on this device have shapes but no data; operators compute only shapes."""


class GlobalRandomness(UserWarning):
    """A local step draws from a global random generator."""


class Step(NamedTuple):
    """The parts of a method that define a local step, and the label for messages; a method has them too."""

    label: str
    objective: Objective
    rule: LocalRule
    local: LocalOptions


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that a step executes ``count`` times, on average; FLOPs and bytes are those of one execution.

    ``groups`` and ``pixels`` are those of a convolution, see :func:`edgefl.cost.formulas.loops_of`.
    """

    name: str
    flops: float
    bytes: float
    count: float
    kind: str = ""
    groups: int = 0
    pixels: int = 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """The device-independent cost of one local step."""

    batch: int
    operators: tuple[Operator, ...]  # all executed operators, identical ones merged, in the order of first execution
    # multiply-accumulates of convolutions and linear layers in the forward pass, all paths (called FLOPs in papers)
    layer_macs: int
    forward_macs: int  # multiply-accumulates of every product in the forward pass, including regularisers
    training_flops: float  # floating-point operations of the whole step: forward, backward and the rule's update
    bytes_touched: float  # bytes that the operators read and write
    # maximum of live bytes: parameters, buffers, the batch, the frozen copies and vectors that the step reads, the
    # local optimizer state, activations kept for the backward pass, gradients
    peak_memory_bytes: int

    @property
    def launches(self) -> float:
        """Number of executed operators, without views."""
        return sum(operator.count for operator in self.operators)


def mean_cost(costs: Sequence[StepCost]) -> StepCost:
    """The mean cost of steps that are equally likely, and the memory of the largest."""
    first = costs[0]
    if len(costs) == 1:
        return first
    share = 1 / len(costs)
    counts: Counter[Operator] = Counter()
    for each in costs:
        for operator in each.operators:
            counts[replace(operator, count=0)] += operator.count  # type: ignore[assignment]
    return StepCost(
        batch=first.batch,
        operators=tuple(replace(operator, count=count * share) for operator, count in counts.items()),
        layer_macs=round(sum(each.layer_macs for each in costs) * share),
        forward_macs=round(sum(each.forward_macs for each in costs) * share),
        training_flops=sum(each.training_flops for each in costs) * share,
        bytes_touched=sum(each.bytes_touched for each in costs) * share,
        peak_memory_bytes=max(each.peak_memory_bytes for each in costs),
    )


def step_cost(batch: int, executed: Sequence[Record], numbers: NDArray[np.int64], brought_bytes: int) -> StepCost:
    """The summed cost of a step on ``batch`` images.

    ``numbers`` are rows of MACs, FLOPs, bytes and live bytes ``[4, operators]``; ``brought_bytes`` existed before the
    step.
    """
    macs, flops, touched, live = numbers
    counts = Counter(
        (each.name, flop, moved, each.kind, each.groups, each.pixels)
        for each, flop, moved in zip(executed, flops.tolist(), touched.tolist(), strict=True)
    )
    forward = np.array([each.phase == "forward" for each in executed], dtype=bool)
    layer = np.array([each.layer for each in executed], dtype=bool)
    return StepCost(
        batch=batch,
        operators=tuple(
            Operator(name, flop, moved, count, kind, *loops)
            for (name, flop, moved, kind, *loops), count in counts.items()
        ),
        layer_macs=int(macs[forward & layer].sum()),
        forward_macs=int(macs[forward].sum()),
        training_flops=int(flops.sum()),
        bytes_touched=int(touched.sum()),
        peak_memory_bytes=brought_bytes + int(live.max(initial=0)),
    )


@dataclass(frozen=True)
class Trace:
    """The records of one local step, and the bytes that existed before it."""

    batch: int
    records: tuple[Record, ...]
    brought_bytes: int

    @property
    def executed(self) -> tuple[Record, ...]:
        """The operators without the numbers that depend on the batch."""
        return tuple(each._replace(macs=0, flops=0, bytes=0, live=0) for each in self.records)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """MACs, FLOPs, bytes and live bytes ``[4, operators]``."""
        rows = [(record.macs, record.flops, record.bytes, record.live) for record in self.records]
        return np.array(rows, dtype=np.int64).reshape(-1, 4).T


def measure(
    model: BlockModel, method: Step | Method, alpha: int, batch: int, drawn: Mapping[str, Tensor] | None = None
) -> StepCost:
    """The cost of one local step of ``method`` on ``batch`` images, with the last ``alpha`` blocks just received.

    ``model`` is as the method trains it (see ``Objective.adapt``). ``drawn`` are the step's random inputs, with data;
    by default without.

    Raises:
        DataDependentError: the operators of the method's objective or rule depend on numbers in tensors.
    """
    found = trace(model, method, alpha, batch, drawn)
    return step_cost(batch, found.executed, found.numbers, found.brought_bytes)


def trace(
    model: BlockModel, method: Step | Method, alpha: int, batch: int, drawn: Mapping[str, Tensor] | None = None
) -> Trace:
    """Run one local step of ``method`` on tensors without data and record its operators; see :func:`measure`."""
    found = _traced(model, method, alpha, batch, drawn, NOWHERE)
    if _copies_without_data() and any("group_norm" in record.name for record in found.records):
        found = _traced(model, method, alpha, batch, drawn, torch.device("cpu"))
    return found


@cache
def _copies_without_data() -> bool:
    """True if group norm copies a channels-last input without data, as PyTorch 2.6 does; it copies none with data."""
    images = torch.empty(1, 2, 2, 2, device=NOWHERE).to(memory_format=torch.channels_last)
    with Recorder() as recorder:
        torch.nn.functional.group_norm(images, 1)
    return len(recorder.records) > 1


def _traced(  # noqa: PLR0917  (they come in the order of `trace`)
    model: BlockModel,
    method: Step | Method,
    alpha: int,
    batch: int,
    drawn: Mapping[str, Tensor] | None,
    device: torch.device,
) -> Trace:
    layout = model.layout
    parameters, buffers = _zeros(device, layout.parameter_count), _zeros(device, layout.buffer_count)
    objective, rule = method.objective, method.rule
    vectors = {name: _zeros(device, layout.parameter_count) for name in sorted(objective.vectors | rule.vectors)}
    draws = objective.draw(generator(0, "cost"), batch)
    context = Context(
        model=model,
        frozen={name: _frozen(layout, vectors.get(name), device) for name in sorted(objective.frozen)},
        vectors={name: vectors[name] for name in sorted(objective.vectors)},
        client={name: _fact(name, model, device) for name in sorted(objective.client)},
        alpha=alpha,
        draws={name: draw.to(device) for name, draw in draws.items()} if drawn is None else drawn,
    )
    labels = model.task.label_shape(model.classes, model.sample_shape)
    images = Batch(model.inputs(batch, device), torch.zeros(batch, *labels, dtype=model.task.label_type, device=device))
    model.hold_constants(device)
    recorder, others = Recorder(), _other_generators()
    with without_data(method.label):
        trained = Trained(objective, layout, alpha, parameters)
        parameters, options = trained.parameters, method.local.on(layout, trained.first)
        with Recorder():  # not counted: the step's records start after it
            held = {name: vectors[name] for name in sorted(rule.vectors)} | rule.first(parameters)
            memory = rule.begin(parameters, {name: held[name] for name in sorted(rule.vectors)}, options, 1)
        with recorder:
            local_step(
                objective,
                rule,
                parameters,
                buffers,
                images,
                context,
                memory,
                options,
                options.lr_at(0),
                leaves=trained.leaves,
                entering=recorder.entering,
            )
    now = _other_generators()
    recorder.draws |= {name: "its loss, local rule or model" for name in now if now[name] != others[name]}
    for name, part in recorder.draws.items():
        if part == "its model" and model.random:
            continue  # its layers draw from the key of a job's step
        warnings.warn(
            f"method '{method.label}': {part} draws from a global random generator ({name}), so its results depend on "
            "what ran before it and differ between engines and repetitions; a loss gets its random inputs from draw()",
            GlobalRandomness,
            stacklevel=1,
        )
    return Trace(batch, tuple(recorder.records), recorder.brought_bytes)


@contextmanager
def without_data(label: str = "") -> Iterator[None]:
    """Run code on tensors without data; ``label`` is that of the method, if it is a method's."""
    try:
        yield
    except DataDependentError as error:
        raise DataDependentError(error.dependence, label, _whose(error)) from None
    except ValueError as error:
        if not is_refusal(error):
            raise
        raise UserError("the model's batch norm needs a batch of two or more samples to train, found 1") from None
    except (RuntimeError, TypeError) as error:
        if "meta" not in str(error).lower():
            raise
        raise DataDependentError(NEEDS_DATA, label, _whose(error)) from error


def _whose(error: Exception) -> str:
    return whose(frame for frame, _ in walk_tb(error.__traceback__))


def _other_generators() -> dict[str, object]:
    return {"random": random.getstate(), "numpy.random": str(np.random.get_state(legacy=False))}  # noqa: NPY002


def _fact(name: str, model: BlockModel, device: torch.device) -> Tensor:
    if name == "round":
        return torch.zeros((), dtype=torch.int64, device=device)
    return _zeros(device, model.classes) if name == "label_counts" else _zeros(device)


def _zeros(device: torch.device, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float32, device=device)


def _frozen(layout: Layout, parameters: Tensor | None, device: torch.device) -> Weights:
    """A frozen copy; if the step also reads its parameters as a vector, both share memory.

    Otherwise each tensor has its own storage, so that only tensors that the step reads count as memory: FedMLB does not
    use the frozen first block.
    """
    if parameters is not None:
        return layout.frozen(parameters, _zeros(device, layout.buffer_count))
    shapes = layout.weights(_zeros(NOWHERE, layout.parameter_count), _zeros(NOWHERE, layout.buffer_count))
    return tuple(Frozen({name: _zeros(device, *tensor.shape) for name, tensor in block.items()}) for block in shapes)


class BlockFigures(NamedTuple):
    """One block, for one sample."""

    name: str
    output: tuple[int, ...]  # shape of its output without the batch dimension
    parameters: int  # numbers that are trained and sent
    buffers: int  # numbers that are not trained, such as running statistics
    bytes: int  # of what is sent, as float32
    macs: int  # multiply-accumulates of the forward pass


def block_figures(model: BlockModel) -> list[BlockFigures]:
    """The figures of each block, counted on tensors without data."""
    try:
        with without_data():
            return _figures(model)
    except DataDependentError as error:
        raise UserError(DataDependentError(error.dependence, whose="the model").reason) from error


def _figures(model: BlockModel) -> list[BlockFigures]:
    layout = model.layout
    parameters, buffers = (torch.empty(size, device=NOWHERE) for size in (layout.parameter_count, layout.buffer_count))
    weights, found = layout.weights(parameters, buffers), []
    # Batch norm without statistics takes those of its batch in an evaluation, too.
    samples = 2 if any(isinstance(each, _NormBase) and not each.track_running_stats for each in model.modules()) else 1
    tap = model.inputs(samples, NOWHERE)
    for index, name in enumerate(layout.block_names):
        with Recorder() as recorder, torch.no_grad(), using(training=False):
            tap = model.apply_blocks(weights, tap, start=index, stop=index + 1)
        trained, others = (
            sum(entry.numel for entry in entries if entry.block == index)
            for entries in (layout.parameters, layout.buffers)
        )
        macs = sum(record.macs for record in recorder.records) // samples
        found.append(BlockFigures(name, tuple(tap.shape[1:]), trained, others, layout.block_bytes()[index], macs))
    return found
