"""Records the operators that PyTorch executes: each operator, the bytes it reads and writes, and the live bytes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from traceback import walk_stack
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.cost.cuda import FUSED
from edgefl.cost.data_dependence import DataDependentError, argument_of, data_dependence, whose
from edgefl.cost.fake import CPU, DEVICE, META, Fake, computed, recording, without_numbers
from edgefl.cost.formulas import is_counted, kind_of, loops_of, work_of
from edgefl.methods.parts.local_step import Phase
from edgefl.operator_kinds import Backend

LAYERS = frozenset(
    (F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d, F.bilinear)
)
"""The functions whose products papers count as a model's FLOPs."""

ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"})
"""Operators that launch no kernel: they allocate memory or return a view."""

SMALL = 1 << 16
"""Numbers of the largest constant that a model may make and read, such as the positions of its tokens."""

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
    zeros = tensor.new_zeros((*tensor.shape, num_classes))
    return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)


class _Layers(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is F.multi_head_attention_forward:
            lines = {**vars(F), "has_torch_function": lambda _: False}
            with self:  # its own lines call layers, which this mode must find
                return FunctionType(func.__code__, lines, argdefs=func.__defaults__)(*args, **(kwargs or {}))
        if func is F.one_hot and (args[1:] or kwargs) and -1 not in (args + tuple((kwargs or {}).values()))[1:]:
            func = _one_hot
        outer, self.recorder.layer = self.recorder.layer, self.recorder.layer or func in LAYERS
        try:
            return self.recorder.called(func)(*args, **(kwargs or {}))
        finally:
            self.recorder.layer = outer


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that creates a :class:`Record` for every executed operator.

    Storages that an operator reads and that existed before are listed in ``brought``, with their bytes, and count as
    live during the whole step. ``draws`` has the operators that drew from PyTorch's global generator, with the part
    that called them; ``differs`` is true if another backend executes other operators. ``with_data``: the tensors have
    data, so that operators may depend on it.
    """

    def __init__(self, backend: Backend = "cpu", *, with_data: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._backend = backend
        self.differs = False
        self._with_data = with_data
        self.records: list[Record] = []
        self.phase: Phase = "forward"
        self.layer = False
        self.draws: dict[str, str] = {}
        self.brought: dict[int, int] = {}
        self._live = 0
        self._minibatches: list[int] = []  # where each of a step's minibatches begins, and the update
        self._made: dict[int, weakref.ref[Any]] = {}
        self._layers = _Layers(self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skipping would import the compiler, a second or two, and nothing is compiled in this mode."""
        return False

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

    @property
    def brought_bytes(self) -> int:
        return sum(self.brought.values())

    def __enter__(self) -> Recorder:
        recording(1)
        super().__enter__()  # type: ignore[no-untyped-call]
        self._layers.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._layers.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        recording(-1)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is DEVICE:
            return CPU
        keywords = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if not is_counted(name) and func._can_decompose():  # in inference mode PyTorch does not do it
            super().__enter__()  # type: ignore[no-untyped-call]
            try:
                return func.decompose(*args, **keywords)
            finally:
                super().__exit__(None, None, None)  # type: ignore[no-untyped-call]
        given = [*args, *(value for key, value in keywords.items() if key != "out")]
        inputs = list(_tensors(given))
        # Constants of the model have numbers, and the random inputs of a variant (Objective.variants).
        numberless = not self._with_data and any(map(without_numbers, inputs))
        dependence = data_dependence(func, args, keywords) if numberless else None
        if dependence is not None:
            raise DataDependentError(dependence)
        keyed = any(isinstance(one, torch.Generator) for one in given)
        seeded = torch.Tag.nondeterministic_seeded in func.tags and not keyed
        if seeded and all(argument_of(func, share, args) != 0 for share in ("dropout_p", "dropout")):
            self.draws[name.removesuffix("_")] = whose(frame for frame, _ in walk_stack(None))
        if any(isinstance(tensor, Fake) for tensor in inputs):
            result = computed(func, args, keywords)
        else:
            result = func(*args, **keywords) if inputs or self._with_data else self._constant(func, args, keywords)
        outputs = list(_tensors([result]))
        known = {self._bring(tensor) for tensor in _tensors([inputs, keywords.get("out")])}
        writes = func._schema.is_mutable
        fresh = [tensor for tensor in outputs if tensor.untyped_storage()._cdata not in known]
        for tensor in fresh:
            self._make(tensor)
        if name in ALLOCATIONS or torch.Tag.inplace_view in func.tags or (not fresh and not writes):
            return result
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
                bytes=_touched(name, args, inputs, outputs or _written(func, args)),
                live=self._live,
                groups=groups,
                pixels=pixels,
            )
        )
        return result

    @staticmethod
    def _constant(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """A new tensor: with its numbers if it is small and not random."""
        if keywords.get("device") == META or not any(each.name == "device" for each in func._schema.arguments):
            return func(*args, **keywords)
        shape = func(*args, **{**keywords, "device": META})
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        return Fake.of(shape) if drawn or shape.numel() > SMALL else func(*args, **keywords)

    def add(self, record: Record) -> None:
        self.records.append(record)

    def _bring(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self._made:
            self.brought[key] = storage.nbytes()
        return key

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


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _numbers(tensor: Tensor) -> int:
    """An expanded dimension is read once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride or not size:
            count *= size
    return count


def _written(func: Any, arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that an operator without outputs changes, such as an optimizer's."""
    pairs = zip(func._schema.arguments, arguments, strict=False)
    return list(_tensors([value for each, value in pairs if each.alias_info is not None and each.alias_info.is_write]))


def _touched(name: str, arguments: tuple[Any, ...], inputs: list[Tensor], outputs: list[Tensor]) -> int:
    if name == "convolution_backward":
        by_input, by_weight, _ = arguments[10]
        inputs = [arguments[0], *([arguments[1]] if by_weight else []), *([arguments[2]] if by_input else [])]
    elif name in OVERWRITES:
        inputs = inputs[1:]
    read = {
        (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape): tensor.element_size()
        * _numbers(tensor)
        for tensor in inputs
    }
    written = sum(tensor.element_size() * _numbers(tensor) for tensor in outputs)
    if name in GATHERS:
        source = inputs[0]
        read[source.untyped_storage()._cdata, source.storage_offset(), source.shape] = (
            source.element_size() * outputs[0].numel()
        )
    return sum(read.values()) + written
