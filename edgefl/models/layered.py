"""Split a module at its list of layers, where its ``forward`` cannot be traced.

That ``forward`` computes the first block until the first layer is called, and the last block with the layers, and what
precedes them, replaced. What the module gives to its layers is recorded in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.graph_module import _copy_attr
from torch.utils._pytree import tree_leaves, tree_map

from edgefl.models.splitting import Split

Inputs = Callable[[int, torch.device], Tensor]
"""Inputs for a batch of so many samples, all zero, on a device."""

_BATCH = 3
"""Samples in the recorded call; a number that no other dimension is likely to have."""


def layered(module: nn.Module, inputs: Inputs) -> Split | None:
    """The blocks of a module with a list of layers, or ``None`` if it has none that can be called alone."""
    lists = [(path, list(each)) for path, each in module.named_modules() if isinstance(each, nn.ModuleList)]
    alike = [(path, layers) for path, layers in lists if len({type(each) for each in layers}) == 1]
    path, layers = max(alike, key=lambda each: len(each[1]), default=("", []))
    ancestors = [path.rsplit(".", count)[0] for count in range(path.count(".") + 1)] + [""]
    if not layers or any(True for each in ancestors for _ in module.get_submodule(each).parameters(recurse=False)):
        return None
    others = dict(_around(module, path))
    given, replies, after, tuples = _recorded(module, layers, others, inputs(_BATCH, torch.device("cpu")))
    if len(given) != len(layers):
        return None
    front = partial(_before_layers, module=module, first=layers[0])
    blocks: dict[str, nn.Module] = {"embedding": _Block(module, replies, front)}
    for index, (layer, extra) in enumerate(zip(layers, given, strict=True)):
        blocks[f"layer{index + 1}"] = _Block(module, [f"{path}.{index}"], partial(_called, layer=layer), extra)
    known = [(others[name], reply) for name, reply in replies.items() if name not in after]
    tail = partial(_after_layers, module=module, layers=layers, replies=known, inputs=inputs, tuples=tuples)
    blocks["head"] = _Block(module, after, tail)
    return Split(blocks)


def _around(module: nn.Module, path: str, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The largest submodules outside the list of layers at ``path``."""
    for name, child in module.named_children():
        here = f"{prefix}{name}"
        if path.startswith(f"{here}."):
            yield from _around(child, path, f"{here}.")
        elif here != path:
            yield here, child


def _recorded(
    module: nn.Module, layers: list[nn.Module], others: Mapping[str, nn.Module], inputs: Tensor
) -> tuple[list[Any], dict[str, Any], list[str], bool]:
    """What each layer gets in addition to its input, and what the modules before them return, both for any batch.

    Then the names of the modules that are called after the layers, and True if layers return tuples.
    """
    given, replies, after, tuples = list[Any](), dict[str, Any](), dict[str, None](), [False]

    def layer_called(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given.append(tree_map(_of_a_batch, (args[1:], kwargs)))

    def layer_returned(_: nn.Module, __: Any, output: Any) -> None:
        tuples[0] = isinstance(output, tuple)

    def called(name: str, _: nn.Module, __: Any, output: Any) -> None:
        if not given:
            replies[name] = tree_map(_of_a_batch, output)
        elif len(given) == len(layers):
            after[name] = None

    was_training = module.training
    module.eval()
    handles = [each.register_forward_pre_hook(layer_called, with_kwargs=True) for each in layers]
    handles += [each.register_forward_hook(layer_returned) for each in layers]
    handles += [each.register_forward_hook(partial(called, name)) for name, each in others.items()]
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        module.train(was_training)
        for handle in handles:
            handle.remove()
    return given, replies, list(after), tuples[0]


class _OfABatch(nn.Module):
    """A tensor of one sample, or one for all samples of a batch."""

    one: Tensor

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self._expands = tensor.dim() > 0 and len(tensor) == _BATCH
        self.register_buffer("one", (tensor[:1] if self._expands else tensor).clone(), persistent=False)

    def shape(self, batch: int) -> list[int]:
        return [batch, *self.one.shape[1:]] if self._expands else list(self.one.shape)

    def forward(self, batch: int) -> Tensor:
        return self.one.expand(self.shape(batch)) if self._expands else self.one


def _of_a_batch(value: Any) -> Any:
    return _OfABatch(value) if isinstance(value, Tensor) else value


class _Block(nn.Module):
    """A block with submodules that keep their full names, and the constants that its layer gets."""

    def __init__(
        self, module: nn.Module, paths: Iterable[str], compute: Callable[..., Tensor], given: Any = ()
    ) -> None:
        super().__init__()
        for path in paths:
            _copy_attr(module, self, path)
        self._compute, self._given = compute, given
        self._constants = nn.ModuleList(each for each in tree_leaves(given) if isinstance(each, _OfABatch))

    def forward(self, inputs: Tensor) -> Tensor:
        def constant(each: Any) -> Any:
            return each(len(inputs)) if isinstance(each, _OfABatch) else each

        return self._compute(inputs, *tree_map(constant, self._given))


class _Reached(Exception):  # noqa: N818  (a stop, no error)
    pass


def _before_layers(inputs: Tensor, *, module: nn.Module, first: nn.Module) -> Tensor:
    taps: list[Tensor] = []

    def stop(tap: Tensor, *_: Any, **__: Any) -> Tensor:
        taps.append(tap)
        raise _Reached

    with suppress(_Reached), _replaced({first: stop}):
        module(inputs)
    return taps[0]


def _called(tap: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any], *, layer: nn.Module) -> Tensor:
    output = layer(tap, *args, **kwargs)
    result: Tensor = output[0] if isinstance(output, tuple) else output
    return result


def _after_layers(
    tap: Tensor,
    *,
    module: nn.Module,
    layers: list[nn.Module],
    replies: list[tuple[nn.Module, Any]],
    inputs: Inputs,
    tuples: bool,
) -> Tensor:
    def empty(each: Any) -> Any:
        if not isinstance(each, _OfABatch):
            return each
        return torch.zeros(each.shape(len(tap)), dtype=each.one.dtype, device=tap.device)

    output = (tap,) if tuples else tap
    known: dict[nn.Module, Callable[..., Any]] = dict.fromkeys(layers, lambda *_, **__: output)
    known |= {each: lambda *_, reply=reply, **__: tree_map(empty, reply) for each, reply in replies}
    with _replaced(known):
        result: Tensor = module(inputs(len(tap), tap.device))
    return result


@contextmanager
def _replaced(functions: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Let modules compute something else than their own ``forward``."""
    own = {module: module.__dict__.pop("forward") for module in functions if "forward" in module.__dict__}
    for module, function in functions.items():
        module.__dict__["forward"] = function
    try:
        yield
    finally:
        for module in functions:
            del module.__dict__["forward"]
        for module, function in own.items():
            module.__dict__["forward"] = function
