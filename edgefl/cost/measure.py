"""The cost of one local step of a method, measured by running it on tensors without data."""

import random
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from edgefl.cost.private_step import PrivateStep, layer_calls, private_records
from edgefl.cost.recorder import Record, Recorder
from edgefl.errors import UserError
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule, Trained, local_step, minibatches
from edgefl.methods.parts.objective import Batch, Context, Objective, Variant
from edgefl.methods.recipe import Method
from edgefl.models.block_model import BlockModel
from edgefl.models.data_dependence import NEEDS_DATA, DataDependentError, whose
from edgefl.models.fake import CPU, META, Fake, fake
from edgefl.models.layout import Frozen, Layout, Weights
from edgefl.models.mode import using
from edgefl.models.norm import is_refusal
from edgefl.operator_kinds import Backend
from edgefl.privacy.training import PrivateTraining
from edgefl.randomness import generator


class GlobalRandomness(UserWarning):
    """A local step draws from a global random generator."""


class Step(NamedTuple):
    """The parts of a method that define a local step, and the label for messages; a method has them too."""

    label: str
    objective: Objective
    rule: LocalRule
    local: LocalOptions


def private_step(method: Step | Method) -> PrivateStep | None:
    """How a method's clients clip the gradients of their examples; ``None`` if they do not."""
    private = method.private if isinstance(method, Method) else None
    dp = private.dp if isinstance(private, PrivateTraining) else None
    return dp.step if dp is not None and not dp.of_clients else None


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


def mean_cost(costs: Sequence[tuple[float, StepCost]]) -> StepCost:
    """The mean cost of steps with these shares, and the memory of the largest."""
    if len(costs) == 1:
        return costs[0][1]
    counted = [(share, each) for share, each in costs if share]
    counts: Counter[Operator] = Counter()
    for share, each in counted:
        for operator in each.operators:
            counts[replace(operator, count=0)] += share * operator.count  # type: ignore[assignment]
    return StepCost(
        batch=costs[0][1].batch,
        operators=tuple(replace(operator, count=count) for operator, count in counts.items()),
        layer_macs=round(sum(share * each.layer_macs for share, each in counted)),
        forward_macs=round(sum(share * each.forward_macs for share, each in counted)),
        training_flops=sum(share * each.training_flops for share, each in counted),
        bytes_touched=sum(share * each.bytes_touched for share, each in counted),
        peak_memory_bytes=max(each.peak_memory_bytes for _, each in costs),
    )


def merged(records: Iterable[Record]) -> tuple[Operator, ...]:
    """The operators of records; identical ones are merged, in the order of first execution."""
    counts = Counter((each.name, each.flops, each.bytes, each.kind, each.groups, each.pixels) for each in records)
    return tuple(
        Operator(name, flops, moved, count, kind, *loops)
        for (name, flops, moved, kind, *loops), count in counts.items()
    )


def step_cost(batch: int, executed: Sequence[Record], numbers: NDArray[np.int64]) -> StepCost:
    """The summed cost of a step on ``batch`` images; ``numbers`` are as of :attr:`Trace.numbers`."""
    brought_bytes = int(numbers[3, -1])
    macs, flops, touched, live = numbers[:, :-1]
    forward = np.array([each.phase == "forward" for each in executed], dtype=bool)
    layer = np.array([each.layer for each in executed], dtype=bool)
    return StepCost(
        batch=batch,
        operators=merged(
            each._replace(flops=flop, bytes=moved)
            for each, flop, moved in zip(executed, flops.tolist(), touched.tolist(), strict=True)
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
    differs: bool = False  # another backend executes other operators

    @property
    def executed(self) -> tuple[Record, ...]:
        """The operators without the numbers that depend on the batch."""
        return tuple(each._replace(macs=0, flops=0, bytes=0, live=0) for each in self.records)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """MACs, FLOPs, bytes and live bytes ``[4, operators + 1]``; the last column: before the step."""
        rows = [(record.macs, record.flops, record.bytes, record.live) for record in self.records]
        return np.array([*rows, (0, 0, 0, self.brought_bytes)], dtype=np.int64).T

    @property
    def cost(self) -> StepCost:
        return step_cost(self.batch, self.executed, self.numbers)


ALIKE = (Variant(1.0, {}),)
"""All steps of a method execute the same operators, whatever is drawn."""


def measure(model: BlockModel, method: Step | Method, alpha: int, batch: int, backend: Backend = "cpu") -> StepCost:
    """The mean cost of a local step of ``method`` on ``batch`` images, with the last ``alpha`` blocks just received.

    ``model`` is as the method trains it (see ``Objective.adapt``).

    Raises:
        DataDependentError: the operators of the method's objective or rule depend on numbers in tensors.
    """
    variants = method.objective.variants(model) or ALIKE
    return mean_cost([(share, trace(model, method, alpha, batch, drawn, backend).cost) for share, drawn in variants])


def trace(  # noqa: PLR0917  (a step is made of this many things)
    model: BlockModel,
    method: Step | Method,
    alpha: int,
    batch: int,
    drawn: Mapping[str, Tensor] = ALIKE[0].draws,
    backend: Backend = "cpu",
) -> Trace:
    """Run one local step of ``method`` on tensors without data and record its operators; see :func:`measure`.

    ``drawn`` are the step's random inputs, with data; by default without.
    """
    layout, objective, rule = model.layout, method.objective, method.rule
    local, dtype = method.local, torch.bfloat16 if method.local.precision == "bfloat16" else torch.float32
    others = _other_generators()
    at_once = min(batch, local.batch) if local.accumulate > 1 else batch
    more = max(0, batch // at_once - 2)  # minibatches like the second one
    size = batch - more * at_once
    with without_data(method.label), _constants_in(model, local.precision):
        with Recorder():  # not counted: the step's records start after it
            recorder = Recorder(backend, rows=_rows(model))
            parameters, buffers = fake(layout.parameter_count, dtype=dtype), fake(layout.buffer_count, dtype=dtype)
            read = sorted(objective.vectors | rule.vectors)
            vectors = {name: fake(layout.parameter_count, dtype=dtype) for name in read}
            context = Context(
                model=model,
                frozen={name: _frozen(layout, dtype, vectors.get(name)) for name in sorted(objective.frozen)},
                vectors={name: vectors[name] for name in sorted(objective.vectors)},
                client={name: _fact(name, model) for name in sorted(objective.client)},
                alpha=alpha,
            )
            labels = model.task.label_shape(model.classes, model.sample_shape)
            type = dtype if model.input_type.is_floating_point else model.input_type
            inputs = fake(size, *model.sample_shape, dtype=type)
            images = Batch(inputs, fake(size, *labels, dtype=model.task.label_type))
            later = sum(each.nbytes * (size - at_once) // size for each in images)  # not loaded with the first one
            sizes = {len(part.labels) for _, part in minibatches(images, local)}
            draws = {each: objective.draw(generator(0, "cost"), each) for each in sizes}
            draws = {each: {name: Fake.of(of.to(META)) for name, of in named.items()} for each, named in draws.items()}
            trained = Trained(objective, layout, alpha, parameters)
            options = local.on(layout, trained.first)
            held = {name: vectors[name] for name in sorted(rule.vectors)} | rule.first(trained.parameters)
            memory = rule.begin(trained.parameters, {name: held[name] for name in sorted(rule.vectors)}, options, 1)
        with recorder, layer_calls(model, recorder) as calls:
            local_step(
                objective,
                rule,
                trained.parameters,
                buffers,
                images,
                context,
                memory,
                options,
                options.lr_at(0),
                draw=lambda size: drawn or draws[size],
                leaves=trained.leaves,
                precision="bfloat16" if local.precision == "autocast" else "float32",
                entering=recorder.entering,
            )
    now = _other_generators()
    recorder.draws |= {name: "its loss, local rule or model" for name in now if now[name] != others[name]}
    for name, part in recorder.draws.items():
        if model.random and (part == "its model" or model.recomputes):
            continue  # its layers draw from the key of a job's step
        warnings.warn(
            f"method '{method.label}': {part} draws from a global random generator ({name}), so its results depend on "
            "what ran before it and differ between engines and repetitions; a loss gets its random inputs from draw()",
            GlobalRandomness,
            stacklevel=1,
        )
    records = recorder.repeated(1, more) if more else recorder.records
    if (step := private_step(method)) is not None:
        records = private_records(step, records, calls)
    return Trace(batch, tuple(records), sum(recorder.brought.values()) - later, recorder.differs)


@contextmanager
def _constants_in(model: BlockModel, precision: str) -> Iterator[None]:
    """Let the model's calls read its constants as those of a device: a frozen base of fewer bits needs no copies."""
    lora = model.lora
    small = () if lora is None or lora.base == "float32" or precision == "float32" else model.frozen_base()
    matrices = {id(each) for each in small if each.dim() > 1}

    def own(key: tuple[int, torch.device], each: Tensor) -> Tensor:
        cast = each.is_floating_point() and (precision == "bfloat16" or key[0] in matrices)
        return each.to(torch.bfloat16) if cast else each

    for each, _ in model.constants():
        model.constant(each, CPU)
    before = model._constants
    try:
        with Recorder():
            model._constants = {key: own(key, each) for key, each in before.items()}
        yield
    finally:
        model._constants = before


def _rows(model: BlockModel) -> dict[int, tuple[int, int]]:
    """The rows of a frozen base that a device does not store as float32, by the keys of their storages."""
    if model.lora is None or model.lora.base == "float32":
        return {}
    base = ((model.constant(each, CPU), each.shape) for each in model.frozen_base())
    return {own.untyped_storage()._cdata: model.lora.stored_rows(shape) for own, shape in base}


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
        words = ("meta", "data pointer", "unallocated storage")  # in PyTorch's errors about tensors without data
        if not any(each in str(error).lower() for each in words):
            raise
        raise DataDependentError(NEEDS_DATA, label, _whose(error)) from error


def _whose(error: Exception) -> str:
    return whose(frame for frame, _ in walk_tb(error.__traceback__))


def _other_generators() -> dict[str, object]:
    return {"random": random.getstate(), "numpy.random": str(np.random.get_state(legacy=False))}  # noqa: NPY002


def _fact(name: str, model: BlockModel) -> Tensor:
    if name == "round":
        return fake(dtype=torch.int64)
    return fake(model.classes) if name == "label_counts" else fake()


def _frozen(layout: Layout, dtype: torch.dtype, parameters: Tensor | None) -> Weights:
    """A frozen copy; if the step also reads its parameters as a vector, both share memory.

    Otherwise each tensor has its own storage, so that only tensors that the step reads count as memory: FedMLB does not
    use the frozen first block.
    """
    if parameters is not None:
        return layout.frozen(parameters, fake(layout.buffer_count, dtype=dtype))
    shapes = layout.weights(fake(layout.parameter_count), fake(layout.buffer_count))
    return tuple(Frozen({name: fake(*tensor.shape, dtype=dtype) for name, tensor in block.items()}) for block in shapes)


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
    parameters, buffers = fake(layout.parameter_count), fake(layout.buffer_count)
    with Recorder():
        weights = layout.weights(parameters, buffers)
    found = []
    # Batch norm without statistics takes those of its batch in an evaluation, too.
    samples = 2 if any(isinstance(each, _NormBase) and not each.track_running_stats for each in model.modules()) else 1
    tap: Tensor = fake(samples, *model.sample_shape, dtype=model.input_type)
    for index, name in enumerate(layout.block_names):
        with Recorder() as recorder, torch.no_grad(), using(training=False):
            tap = model.apply_blocks(weights, tap, start=index, stop=index + 1)
            output = tuple(tap.shape[1:])
        trained, others = (
            sum(entry.numel for entry in entries if entry.block == index)
            for entries in (layout.parameters, layout.buffers)
        )
        macs = sum(record.macs for record in recorder.records) // samples
        found.append(BlockFigures(name, output, trained, others, layout.block_bytes()[index], macs))
    return found
