"""One traced step: the operators that run within a block, as a function of the tensors that differ between steps."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode

from edgefl.cost.data_dependence import data_dependence
from edgefl.cost.uncompiled import UncompiledMode

TracedStep = Callable[..., tuple[Tensor, ...]]
"""The operators of a block, called one after another: from its inputs to its outputs."""

_HANDED_ON = frozenset({"aten::detach", "aten::alias", "aten::lift_fresh"})
"""Operators that return memory of their argument."""

_ONE_ORDER = frozenset({
    "aten::threshold_backward", "aten::hardtanh_backward", "aten::leaky_relu_backward", "aten::add"
})  # fmt: skip
"""Operators that take ten times as long if only some of their inputs are channels-last, as after a flattened map.

Each element is computed from that element only and with at most one rounding, so the order changes no bit.
"""

_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
"""Arguments of operators that are the same in every step."""


class _CannotBeTraced(Exception):  # noqa: N818  (what a block is)
    """A block cannot be represented as operators on its inputs."""


class _Reading(TorchFunctionMode):
    """Calls ``on_read`` when values are read out of a tensor without an operator."""

    _WAYS = frozenset({Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__})
    _SPLITS = frozenset({torch.tensor_split, Tensor.tensor_split})
    """They read the split points out of a tensor without an operator."""

    def __init__(self, on_read: Callable[[], None]) -> None:
        super().__init__()
        self._on_read = on_read

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in self._WAYS or (func in self._SPLITS and _second_is_tensor(args, kwargs)):
            self._on_read()
        return func(*args, **(kwargs or {}))


def _second_is_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> bool:
    return any(isinstance(each, Tensor) for each in (*args[1:], *(kwargs or {}).values()))


class StepTracer(UncompiledMode):
    """A context that traces all operators that run within it, including those of backward passes.

    Tracing does not change results. Until the tracer is deleted, it holds all tensors that are created within, so that
    no tensor reuses the memory of another.

    Args:
        inputs: all outside tensors that operators may read.
        room: maximum number of bytes created; above it, tracing is abandoned.
    """

    supports_higher_order_operators = True
    """Other tensor types are passed through, which ends tracing; without this, PyTorch would raise an error."""

    def __init__(self, inputs: Sequence[Tensor], room: int) -> None:
        super().__init__()
        graph = Graph()
        self._graph: Graph | None = graph
        self._held: dict[int, tuple[Node, Tensor]] = {}
        self._places: dict[Hashable, Node] = {}
        self._storages: set[int] = set()
        self._bytes = 0
        self._reading = _Reading(self.give_up)
        self._most_bytes = room
        with self._unless_it_cannot():
            for number, tensor in enumerate(inputs):
                self._register(tensor, graph.placeholder(f"input_{number}"))
            self._most_bytes += self._bytes

    def traced_step(self, *outputs: Tensor) -> TracedStep | None:
        """The computation of these tensors from the inputs; ``None`` if it cannot be traced.

        It cannot be traced if a number was read out of a tensor or drawn from a global generator, if the size of a
        result depends on data (``x[mask]``, ``unique``), if an outside tensor is not an input, or if more than ``room``
        bytes were created.
        """
        if self._graph is None:
            return None
        try:
            self._graph.output(tuple(self._node(output) for output in outputs))
            code = self._graph.python_code("self")
            found = dict(code.globals)
            exec(code.src, found)
        except Exception:  # noqa: BLE001  (what cannot be traced runs as it is)
            return None
        # Without constants, the code reads nothing from its module.
        return partial(found["forward"], None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        result = func(*args, **keywords)
        if self._graph is not None:
            with self._unless_it_cannot():
                self._record(self._graph, func, (args, keywords), result)
        return result

    def give_up(self) -> None:
        """Stop tracing and release all tensors."""
        self._graph = None
        self._held.clear()

    def __enter__(self) -> StepTracer:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._reading.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._reading.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @contextmanager
    def _unless_it_cannot(self) -> Iterator[None]:
        """Abandon tracing on any error: tensors may be of any kind, and tracing must not affect training."""
        try:
            yield
        except Exception:  # noqa: BLE001  (what cannot be traced runs as it is)
            self.give_up()

    def _record(self, graph: Graph, func: Any, arguments: tuple[Any, Any], result: Any) -> None:
        if not isinstance(func, OpOverload) or not _repeats(func, *arguments):
            raise _CannotBeTraced
        if self._bytes > self._most_bytes:
            raise _CannotBeTraced
        args, keywords = map_aggregate(arguments, self._named)
        if func._schema.name in _HANDED_ON:
            self._register(result, args[0])
            return
        if func._schema.name in _ONE_ORDER and not keywords:
            args = tuple(_in_order(graph, node, one, result) for node, one in zip(args, arguments[0], strict=True))
        node = _called(graph, func, args, keywords)
        if isinstance(result, Tensor):
            self._register(result, node)
        elif isinstance(result, tuple | list):
            for number, each in enumerate(result):
                if isinstance(each, Tensor):
                    self._register(each, graph.call_function(operator.getitem, (node, number)))
        else:
            raise _CannotBeTraced  # a number was read out of a tensor

    def _named(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self._node(argument)
        if isinstance(argument, _PLAIN):
            return argument
        raise _CannotBeTraced

    def _node(self, tensor: Tensor) -> Node:
        """The node that computes a tensor."""
        if id(tensor) in self._held:
            return self._held[id(tensor)][0]
        # Autograd may have wrapped a saved tensor in a new object; its memory is the same.
        if not tensor.numel() or _place(tensor) not in self._places:
            raise _CannotBeTraced
        return self._places[_place(tensor)]

    def _register(self, tensor: Tensor, node: Node) -> None:
        if id(tensor) in self._held:
            return
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise _CannotBeTraced
        self._held[id(tensor)] = node, tensor
        self._places.setdefault(_place(tensor), node)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages:
            self._storages.add(storage.data_ptr())
            self._bytes += storage.nbytes()


def _repeats(func: OpOverload, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether an operator does the same computation on other numbers of the same shapes.

    Operators of other libraries are not tagged reliably.
    """
    if func.namespace != "aten" or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    return data_dependence(func, args, keywords) is None


def _place(tensor: Tensor) -> Hashable:
    """The memory of a tensor's numbers, and their layout."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _in_order(graph: Graph, node: Any, argument: Any, result: Tensor) -> Any:
    """An argument; converted to the result's memory format if both are dense but only one is channels-last."""
    if not isinstance(argument, Tensor) or argument.dim() != 4 or argument.shape != result.shape:
        return node
    lies, wanted = _orders(argument), _orders(result)
    if len(lies) == len(wanted) == 1 and lies != wanted:
        return graph.call_method("contiguous", (node,), {"memory_format": wanted[0]})
    return node


def _orders(tensor: Tensor) -> list[torch.memory_format]:
    """The memory formats in which a tensor is dense: none, one, or, with a single channel or pixel, both."""
    orders = torch.channels_last, torch.contiguous_format
    return [order for order in orders if tensor.is_contiguous(memory_format=order)]


def _called(graph: Graph, func: OpOverload, args: Any, keywords: Any) -> Node:
    """The call of an operator; by its binding in ``torch`` or ``torch.Tensor``, if any, which halves the time."""
    space, _, name = func._schema.name.partition("::")
    if space == "aten" and isinstance(getattr(torch, name, None), BuiltinFunctionType):
        return graph.call_function(getattr(torch, name), args, keywords)
    if space == "aten" and isinstance(getattr(Tensor, name, None), MethodDescriptorType):
        return graph.call_method(name, args, keywords)
    return graph.call_function(func, args, keywords)
