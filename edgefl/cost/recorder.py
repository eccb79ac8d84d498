"""Records the operators that PyTorch executes: each operator, the bytes it reads and writes, and the live bytes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgefl.cost.formulas import is_counted, kind_of, loops_of, work_of
from edgefl.methods.parts.local_step import Phase
from edgefl.models.fake import WithoutNumbers, tensors_in
from edgefl.models.random_layers import multi_head_attention
from edgefl.operator_kinds import Backend

LAYERS = frozenset(
    (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d, F.bilinear)
)
"""The functions whose products papers count as a model's FLOPs."""

ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"})
"""Operators that launch no kernel: they allocate memory or return a view."""

OVERWRITES = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_"})
"""In-place operators that write their first argument without reading it."""

GATHERS = frozenset({"index", "index_select", "gather", "embedding", "_unsafe_index"})
"""Operators that read only as many numbers of their first argument as they return."""


class Record(NamedTuple):
    """One executed operator."""

    name: str  # the ATen operator, without overload
    kind: str  # its kind, see formulas
    phase: Phase
    layer: bool  # a convolution or linear layer of a model called it
    macs: int  # its multiply-accumulates, 0 for operators other than products
    flops: int
    bytes: int  # inputs read once and outputs written once
    live: int  # bytes of all live storages that the step created, after the operator
    groups: int = 0  # see loops_of
    pixels: int = 0


def _one_hot(tensor: Tensor, num_classes: int) -> Tensor:
    """As PyTorch computes it on a CPU, after it has looked whether each number is one of the classes."""
    return tensor.new_zeros((*tensor.shape, num_classes)).scatter_(-1, tensor.unsqueeze(-1), 1)


def _cuda_attention(  # noqa: PLR0917  (as of PyTorch)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The kernel that saves memory, which takes float32, or flash attention for types of 16 bits without a mask."""
    if query.dim() != 4 or enable_gqa:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    dropout_p = 0.0  # the kernel drops weights itself, at the same cost
    if attn_mask is None and query.element_size() == 2:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]  # type: ignore[no-any-return]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            closed = attn_mask.logical_not()
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(closed, -math.inf)
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    trains = any(tensor.requires_grad for tensor in (query, key, value))
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, attn_mask, trains, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]


def _cuda_recurrent(mode: int) -> Callable[..., tuple[Tensor, ...]]:
    """A recurrent layer of cuDNN."""

    def layer(  # noqa: PLR0917  (as of PyTorch)
        inputs: Tensor,
        state: Tensor | Sequence[Tensor],
        weights: Sequence[Tensor],
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        hidden, cell = (state, None) if isinstance(state, Tensor) else state
        size = (hidden if cell is None else cell).shape[-1]
        projected = 0 if hidden.shape[-1] == size else hidden.shape[-1]
        each = (4 if biases else 2) + bool(projected)
        output, *states = torch._cudnn_rnn(
            *(inputs, list(weights), each, inputs.new_empty(0), hidden, cell, mode, size, projected, layers),
            *(batch_first, dropout, train, bidirectional, [], None),
        )[:3]
        return (output, *states) if cell is not None else (output, states[0])

    return layer


FUSED: Mapping[Any, Callable[..., Any]] = {
    F.scaled_dot_product_attention: _cuda_attention,
    torch.rnn_relu: _cuda_recurrent(0),
    torch.rnn_tanh: _cuda_recurrent(1),
    torch.lstm: _cuda_recurrent(2),
    torch.gru: _cuda_recurrent(3),
}
"""What CUDA executes in place of these functions, with their arguments.

PyTorch chooses them by properties of the device, and a tensor of CUDA needs a driver; so they are declared here.
Attention is one operator also with dropout, and with a mask that needs a gradient; a recurrent layer is one operator
for all of its time steps, layers and directions.
"""


class _Layers(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.multi_head_attention_forward:
            with self:  # its own lines call layers, which this mode must find
                return multi_head_attention(*args, **(kwargs or {}))
        if func is F.one_hot and (args[1:] or kwargs) and -1 not in (args + tuple((kwargs or {}).values()))[1:]:
            func = _one_hot
        outer, self.recorder.layer = self.recorder.layer, self.recorder.layer or func in LAYERS
        try:
            return self.recorder.called(func)(*args, **(kwargs or {}))
        finally:
            self.recorder.layer = outer


class Recorder(WithoutNumbers):
    """A context that creates a :class:`Record` for every executed operator.

    Storages that an operator reads and that existed before are listed in ``brought``, with their bytes, and count as
    live during the whole step. ``differs`` is true if another backend executes other operators. ``with_data``: the
    tensors have data, so that operators may depend on it. ``rows`` are the numbers and the bytes of a row of storages
    that a device has in another type, by key.
    """

    def __init__(
        self, backend: Backend = "cpu", *, with_data: bool = False, rows: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        super().__init__()
        self._rows = rows or {}
        self._backend = backend
        self.differs = False
        self.with_data = with_data
        self.records: list[Record] = []
        self.phase: Phase = "forward"
        self.layer = False
        self.brought: dict[int, int] = {}
        self._live = 0
        self._minibatches: list[int] = []  # where each of a step's minibatches begins, and the update
        self._made: dict[int, weakref.ref[Any]] = {}
        self._layers = _Layers(self)

    def called(self, func: Any) -> Any:
        """What the backend executes for a function of PyTorch."""
        if func not in FUSED:
            return func
        self.differs = True
        return FUSED[func] if self._backend == "cuda" else func

    def entering(self, phase: Phase) -> None:
        self.phase = phase
        if phase != "backward":
            self._minibatches.append(len(self.records))

    def repeated(self, number: int, times: int) -> list[Record]:
        """The records, those of a step's minibatch (from 0) so many times more."""
        start, stop = self._minibatches[number], self._minibatches[number + 1]
        return self.records[:stop] + self.records[start:stop] * times + self.records[stop:]

    def __enter__(self) -> Self:
        super().__enter__()
        self._layers.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._layers.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)

    def is_whole(self, func: Any) -> bool:
        return is_counted(func._schema.name.partition("::")[2])

    def executed(
        self, func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], inputs: list[Tensor], result: Any
    ) -> None:
        name = func._schema.name.partition("::")[2]
        outputs = list(tensors_in([result]))
        known = {self._bring(tensor) for tensor in tensors_in([inputs, keywords.get("out")])}
        writes = func._schema.is_mutable
        fresh = [tensor for tensor in outputs if tensor.untyped_storage()._cdata not in known]
        for tensor in fresh:
            self._make(tensor)
        if name in ALLOCATIONS or torch.Tag.inplace_view in func.tags or (not fresh and not writes):
            return
        work = work_of(name, args, keywords, outputs)
        groups, pixels = loops_of(name, args, outputs)
        self.add(
            Record(
                name=name,
                kind=kind_of(name, args),
                phase=self.phase,
                layer=self.layer,
                macs=work.macs,
                flops=work.flops,
                bytes=self._touched(name, args, inputs, outputs or _written(func, args)),
                live=self._live,
                groups=groups,
                pixels=pixels,
            )
        )

    def add(self, record: Record) -> None:
        self.records.append(record)

    def _bring(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self._made:
            stored = self._bytes(tensor, storage.nbytes() // tensor.element_size())
            self.brought[key] = stored if key in self._rows else storage.nbytes()
        return key

    def _bytes(self, tensor: Tensor, numbers: int) -> int:
        row, bytes = self._rows.get(tensor.untyped_storage()._cdata, (1, tensor.element_size()))
        return numbers * bytes // row

    def _touched(self, name: str, arguments: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> int:
        if name == "convolution_backward":
            by_input, by_weight, _ = arguments[10]
            inputs = [arguments[0], *([arguments[1]] if by_weight else []), *([arguments[2]] if by_input else [])]
        elif name in OVERWRITES:
            inputs = inputs[1:]
        read = {_place(tensor): self._bytes(tensor, _numbers(tensor)) for tensor in inputs}
        if name in GATHERS:
            read[_place(inputs[0])] = self._bytes(inputs[0], outputs[0].numel())
        return sum(read.values()) + sum(tensor.element_size() * _numbers(tensor) for tensor in outputs)

    def _make(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._made:
            return

        def freed(_: Any) -> None:
            self._live -= size
            self._made.pop(key, None)

        self._live += size
        self._made[key] = weakref.ref(storage, freed)


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape


def _numbers(tensor: Tensor) -> int:
    """An expanded dimension is read once."""
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)


def _written(func: Any, arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that an operator without outputs changes, such as an optimizer's."""
    pairs = zip(func._schema.arguments, arguments, strict=False)
    return list(tensors_in(value for each, value in pairs if each.alias_info is not None and each.alias_info.is_write))
