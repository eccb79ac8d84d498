"""Which channels of which tensors belong together, found by running a model once.

A group is a set of channels that can only be kept or removed together: the outputs of a convolution, the scales of the
norm after it, the inputs of the next one. Every operator that PyTorch executes relates the dimensions of its operands,
so a model may be written in any way; only operators that mix channels are refused, with the name of their layer.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from traceback import walk_stack
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.errors import UserError
from edgefl.models.block_model import BlockModel
from edgefl.models.fake import tensors_in
from edgefl.models.mode import using


class Piece(NamedTuple):
    """Numbers of a dimension: ``repeat`` for each of the ``channels`` of a ``group``; ``None``: all are kept."""

    group: int | None
    channels: int
    repeat: int = 1

    @property
    def size(self) -> int:
        return self.channels * self.repeat


Axis = tuple[Piece, ...]
"""A dimension, as its consecutive pieces."""


def fixed(size: int) -> Axis:
    """A dimension that is always whole."""
    return (Piece(None, size),)


class Groups:
    """The groups of channels of a model, joined step by step.

    >>> groups = Groups()
    >>> outputs, inputs = groups.new(4), groups.new(12)
    >>> flattened = tuple(piece._replace(repeat=3) for piece in outputs)  # of 1×3 images
    >>> groups.join(inputs, flattened)
    >>> groups.of(inputs)
    (Piece(group=0, channels=4, repeat=3),)
    """

    def __init__(self) -> None:
        self._bound: dict[int, Axis] = {}
        self._sizes: list[int] = []

    def new(self, size: int) -> Axis:
        """A dimension with channels of its own; one of a single number is always kept."""
        if size == 1:
            return fixed(1)
        self._sizes.append(size)
        return (Piece(len(self._sizes) - 1, size),)

    def of(self, axis: Axis) -> Axis:
        """The axis in terms of the groups known now."""
        pieces: list[Piece] = []
        for piece in axis:
            if piece.group in self._bound and piece.group is not None:
                inner = self.of(self._bound[piece.group])
                found = tuple(each._replace(repeat=each.repeat * piece.repeat) for each in inner)
            else:
                found = (piece,)
            for each in found:
                if each.group is not None:
                    pieces.append(each)
                else:
                    before = pieces.pop().channels if pieces and pieces[-1].group is None else 0
                    pieces.append(Piece(None, before + each.size))
        return tuple(pieces)

    def join(self, one: Axis, other: Axis) -> None:
        """The two dimensions have the same channels; where they cannot, the channels of both are always kept."""
        one, other = self.of(one), self.of(other)
        if one == other:
            return
        if _is_whole(one) and one[0].group not in {piece.group for piece in other}:
            self._bind(one[0].group, other)
        elif _is_whole(other) and other[0].group not in {piece.group for piece in one}:
            self._bind(other[0].group, one)
        elif [(piece.channels, piece.repeat) for piece in one] == [(piece.channels, piece.repeat) for piece in other]:
            for mine, others in zip(one, other, strict=True):
                self.join((mine._replace(repeat=1),), (others._replace(repeat=1),))
        else:
            self.keep(one)
            self.keep(other)

    def keep(self, axis: Axis) -> None:
        """The channels of a dimension are always kept."""
        for piece in self.of(axis):
            if piece.group is not None:
                self._bind(piece.group, fixed(piece.channels))

    def _bind(self, group: int | None, axis: Axis) -> None:
        assert group is not None
        self._bound[group] = axis


def _is_whole(axis: Axis) -> bool:
    return len(axis) == 1 and axis[0].group is not None and axis[0].repeat == 1


def sizes_of(axes: Iterable[Axis]) -> dict[int, int]:
    """The number of channels of each group in some dimensions."""
    return {piece.group: piece.channels for axis in axes for piece in axis if piece.group is not None}


def kept_numbers(axis: Axis, kept: Mapping[int, Tensor]) -> Tensor:
    """The numbers of a dimension that belong to the ``kept`` channels of each group, in their order, int64.

    >>> kept_numbers((Piece(0, 4, 2), Piece(None, 1)), {0: torch.tensor([0, 3])})
    tensor([0, 1, 6, 7, 8])
    """
    numbers, start = [], 0
    for piece in axis:
        chosen = torch.arange(piece.channels) if piece.group is None else kept[piece.group]
        numbers.append(start + (chosen[:, None] * piece.repeat + torch.arange(piece.repeat)).flatten())
        start += piece.size
    return torch.cat(numbers)


Axes = tuple[Axis, ...]

_BATCH = 3
"""Samples in the traced batch; a number that no other dimension is likely to have."""

_SAME = {"detach", "clone", "_to_copy", "alias", "contiguous", "lift_fresh", "native_dropout"}
_SAME |= {"_softmax", "_log_softmax"}
"""Operators whose outputs have the dimensions of their first operand."""
_REDUCTIONS = {"mean", "sum", "amax", "amin", "var", "std", "linalg_vector_norm"}


@lru_cache(maxsize=1)  # every share of a model needs them
def traced_axes(model: BlockModel) -> list[Axes]:
    """The groups of channels in each dimension of a layout's tensors; inputs and outputs are always whole."""
    weights, tracing = model.zero_weights(), Tracing(model)
    for block in weights:
        for tensor in block.values():
            tracing.name(tensor, tuple(tracing.groups.new(size) for size in tensor.shape))
    with torch.no_grad(), using(training=False, track=False, width=1.0, keep=None), model.calls(), tracing:
        outputs = model.apply_blocks(weights, model.inputs(_BATCH))
    for axis in tracing.axes(outputs):
        tracing.groups.keep(axis)
    return [
        tuple(tracing.groups.of(axis) for axis in tracing.axes(weights[entry.block][entry.name]))
        for entry in model.layout.entries
    ]


class Tracing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the dimensions of tensors through operators."""

    def __init__(self, model: BlockModel) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.groups = Groups()
        self._model = model
        # The tensors are held, so that an id is not used twice.
        self._axes: dict[int, tuple[Tensor, Axes]] = {}

    def name(self, tensor: Tensor, axes: Axes) -> None:
        self._axes[id(tensor)] = tensor, axes

    def axes(self, tensor: Tensor) -> Axes:
        """Those of an unknown tensor are always whole."""
        known = self._axes.get(id(tensor))
        return tuple(fixed(size) for size in tensor.shape) if known is None else known[1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        operator = func.overloadpacket.__name__
        operands = list(tensors_in(args))
        results = list(tensors_in((outputs,)))
        axes = [axis for each in operands for axis in self.axes(each)] if results else []
        if sizes_of(map(self.groups.of, axes)):
            found = self._related(operator, func, args, operands, results[0])
            if found is None or [_size(axis) for axis in found] != list(results[0].shape):
                raise self._refusal(operator)
            self.name(results[0], found)
        return outputs

    def _refusal(self, operator: str) -> UserError:
        name = layer_in((frame for frame, _ in walk_stack(None)), self._model.blocks)
        layer = f"the layer '{name}'" if name else "its forward"
        return UserError(
            f"the model cannot be trained at a smaller width: {layer} applies '{operator}' to channels, and it is "
            "unknown which of them belong together; expected convolutions, linear layers, norms, pooling, sums and "
            "flattening"
        )

    def _related(  # noqa: PLR0911, PLR0912  (one line for each kind of operator)
        self, operator: str, func: Any, args: Any, operands: Sequence[Tensor], result: Tensor
    ) -> Axes | None:
        """The dimensions of an operator's first result, after joining those of its operands; ``None``: unknown."""
        first = self.axes(operands[0])
        if operator == "convolution":
            return self._convolution(args, result)
        if operator in ("addmm", "mm", "bmm"):
            return self._product(operator, operands)
        if "batch_norm" in operator or operator == "native_group_norm":
            for each in operands[1:]:
                self.groups.join(self.axes(each)[0], first[1])
            return first
        if operator == "native_layer_norm":
            for each in operands[1:]:
                for axis, other in zip(self.axes(each), first[len(first) - each.dim() :], strict=True):
                    self.groups.join(axis, other)
            return first
        # PyTorch's pooling to one pixel sets strides in place, for images with channels last.
        if operator in _SAME or (operator == "as_strided_" and result.shape == operands[0].shape):
            return first
        if "_pool" in operator or operator.startswith("upsample"):  # each channel of [batch, channels, ...] alone
            return (*first[:2], *(fixed(size) for size in result.shape[2:]))
        if operator in _REDUCTIONS:
            return self._reduced(first, args, result)
        if operator in ("t", "transpose", "permute"):
            return _permuted(operator, args, first)
        if operator in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand"):
            return self._viewed(first, result)
        if operator == "cat":
            return self._chained(args[0], (args[1] if len(args) > 1 else 0) % result.dim())
        if operator == "slice":
            place = (args[1] if len(args) > 1 else 0) % result.dim()
            whole = result.shape[place] == operands[0].shape[place]
            if not whole and sizes_of([self.groups.of(first[place])]):
                return None
            return tuple(fixed(result.shape[i]) if i == place and not whole else axis for i, axis in enumerate(first))
        if operator == "embedding":
            table = first
            self.groups.keep(table[0])
            return (*self.axes(operands[1]), table[1])
        if torch.Tag.pointwise in func.tags or operator.rstrip("_") in ("relu", "gelu", "silu", "hardswish"):
            return self._elementwise(operands, result)
        return None

    def _convolution(self, args: Any, result: Tensor) -> Axes | None:
        inputs, weight, bias, *_, transposed, _, groups = args
        arriving, (outputs, reads, *kernel) = self.axes(inputs)[1], self.axes(weight)
        for axis in kernel:
            self.groups.keep(axis)
        if transposed:
            return None
        if groups == 1:
            self.groups.join(reads, arriving)
        elif groups == inputs.shape[1] == weight.shape[0]:
            self.groups.join(outputs, arriving)
        else:
            return None
        if bias is not None:
            self.groups.join(self.axes(bias)[0], outputs)
        return (fixed(result.shape[0]), outputs, *(fixed(size) for size in result.shape[2:]))

    def _product(self, operator: str, operands: Sequence[Tensor]) -> Axes:
        left, right = (self.axes(each) for each in operands[-2:])
        self.groups.join(right[-2], left[-1])
        outputs = (*left[:-1], right[-1])
        if operator == "addmm":
            self.groups.join(self.axes(operands[0])[-1], outputs[-1])
        return outputs

    @staticmethod
    def _reduced(first: Axes, args: Any, result: Tensor) -> Axes:
        if result.dim() == len(first):
            return tuple(fixed(1) if size == 1 else axis for size, axis in zip(result.shape, first, strict=True))
        over = args[1] if len(args) > 1 and args[1] is not None else range(len(first))
        gone = {axis % len(first) for axis in ([over] if isinstance(over, int) else over)}
        return tuple(axis for place, axis in enumerate(first) if place not in gone)

    def _viewed(self, before: Axes, result: Tensor) -> Axes | None:
        """The dimensions after a view, which may insert and remove ones, and merge channels with later ones."""
        left = [self.groups.of(axis) for axis in before if sum(piece.size for piece in axis) != 1]
        after: list[Axis] = []
        for size in result.shape:
            if size == 1:
                after.append(fixed(1))
                continue
            merged: list[Axis] = []
            while math.prod(_size(axis) for axis in merged) < size and left:
                merged.append(left.pop(0))
            if not merged:
                return None
            leading, *rest = merged
            count = math.prod(_size(axis) for axis in rest)
            remaining, over = divmod(_size(leading) * count, size)
            if sizes_of(rest) or over or (remaining > 1 and sizes_of([leading])):
                return None  # a dimension that is divided, or merged with one before it, must be whole
            if remaining > 1:
                left.insert(0, fixed(remaining))
                after.append(fixed(size))
            else:
                after.append(self.groups.of(tuple(piece._replace(repeat=piece.repeat * count) for piece in leading)))
        return tuple(after)

    def _chained(self, tensors: Sequence[Tensor], place: int) -> Axes:
        every = [self.axes(each) for each in tensors]
        for other in every[1:]:
            for index, axis in enumerate(other):
                if index != place:
                    self.groups.join(every[0][index], axis)
        chained = tuple(piece for axes in every for piece in axes[place])
        return tuple(chained if index == place else axis for index, axis in enumerate(every[0]))

    def _elementwise(self, operands: Sequence[Tensor], result: Tensor) -> Axes:
        found: list[Axis | None] = [None] * result.dim()
        for each in operands:
            axes = self.axes(each)
            for place, (size, axis) in enumerate(zip(each.shape, axes, strict=True), result.dim() - len(axes)):
                if size == 1 and result.shape[place] != 1:
                    continue
                known = found[place]
                if known is None:
                    found[place] = axis
                else:
                    self.groups.join(axis, known)
        return tuple(fixed(1) if axis is None else axis for axis in found)


def _size(axis: Axis) -> int:
    return sum(piece.size for piece in axis)


def _permuted(operator: str, args: Any, first: Axes) -> Axes:
    if operator == "permute":
        return tuple(first[place] for place in args[1])
    one, other = (0, 1) if operator == "t" else args[1:3]
    order = list(first)
    if len(order) > 1:
        order[one], order[other] = order[other], order[one]
    return tuple(order)


def layer_in(frames: Iterable[FrameType], module: nn.Module) -> str:
    """The path of the innermost layer of a module whose code runs in these frames; empty if none does."""
    names = {id(layer): name for name, layer in module.named_modules()}
    return max((names.get(id(frame.f_locals.get("self")), "") for frame in frames), key=len, default="")
