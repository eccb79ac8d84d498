"""Split a module at its list of layers, where its ``forward`` cannot be traced.

The blocks are what the module computes before its first layer, each layer, and what it computes after the last one.
The module's own ``forward`` computes the first block until the first layer is called, and the last block with the
layers, and what precedes them, replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from edgefl.models.splitting import Split

Inputs = Callable[[int, torch.device], Tensor]
"""Inputs for a batch of so many samples, all zero, on a device."""


def layered(module: nn.Module, inputs: Inputs) -> Split | None:
    """The blocks of a module with a list of layers, or ``None`` if it has none that can be called alone."""
    found = _list_of_layers(module)
    if found is None:
        return None
    path, layers = found
    others = dict(_around(module, path))
    ancestors = [path.rsplit(".", count)[0] for count in range(path.count(".") + 1)] + [""]
    if any(True for each in ancestors for _ in module.get_submodule(each).parameters(recurse=False)):
        return None
    device = torch.device("cpu")
    records = [_Record(module, layers, others, inputs(batch, device) + value) for batch, value in ((2, 0), (3, 1))]
    given = [_given(*(record.calls.get(index) for record in records)) for index in range(len(layers))]
    if not all(record.is_chain for record in records) or None in given:
        return None
    before, after = ({name: others[name] for name in names} for names in (records[0].before, records[0].after))
    replies = {name: _like(*(record.replies[name] for record in records)) for name in before}
    blocks: dict[str, nn.Module] = {"embedding": _Front(module, layers[0], before)}
    for index, (layer, extra) in enumerate(zip(layers, given, strict=True)):
        assert extra is not None
        blocks[f"layer{index + 1}"] = _Layer(f"{path}.{index}", layer, extra)
    blocks["head"] = _Tail(
        module, layers, inputs, after=after, before=before, replies=replies, tuples=records[0].tuples
    )
    return Split(blocks) if _agree(module, blocks, inputs) else None


def _agree(module: nn.Module, blocks: Mapping[str, nn.Module], inputs: Inputs) -> bool:
    """True if blocks and module agree for two batches, with other weights, since some weights may be zero at first."""
    device, generator = torch.device("cpu"), torch.Generator().manual_seed(0)
    parameters, was_training = list(module.parameters()), module.training
    own = [each.detach().clone() for each in parameters]
    module.eval()
    try:
        with torch.no_grad():
            for each in parameters:
                each.add_(torch.randn(each.shape, generator=generator, dtype=each.dtype), alpha=0.1)
            for batch in (2, 3):
                zeros = inputs(batch, device)
                noise = torch.randn(zeros.shape, generator=generator)
                tap = given = noise if zeros.is_floating_point() else (noise > 0).to(zeros.dtype)
                for block in blocks.values():
                    tap = block(tap)
                if not torch.allclose(tap, module(given), rtol=1e-3, atol=1e-5):
                    return False
    except Exception:  # noqa: BLE001  (whatever the module's code raises)
        return False
    finally:
        with torch.no_grad():
            for each, values in zip(parameters, own, strict=True):
                each.copy_(values)
        module.train(was_training)
    return True


def _list_of_layers(module: nn.Module) -> tuple[str, list[nn.Module]] | None:
    """The longest list of modules of one kind, and its path."""
    lists = [(path, list(each)) for path, each in module.named_modules() if isinstance(each, nn.ModuleList)]
    alike = [(path, layers) for path, layers in lists if layers and len({type(each) for each in layers}) == 1]
    return max(alike, key=lambda each: len(each[1]), default=None)


def _around(module: nn.Module, path: str, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The largest submodules outside the list of layers at ``path``."""
    for name, child in module.named_children():
        here = f"{prefix}{name}"
        if path.startswith(f"{here}."):
            yield from _around(child, path, f"{here}.")
        elif here != path:
            yield here, child


class _Record:
    """A call of the module: what its layers get, and which modules are called before and after them."""

    def __init__(
        self, module: nn.Module, layers: list[nn.Module], others: Mapping[str, nn.Module], inputs: Tensor
    ) -> None:
        self.calls: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.before: list[str] = []
        self.after: list[str] = []
        self.replies: dict[str, Any] = {}
        self.is_chain, self.tuples = True, False
        self._last: Any = None
        was_training = module.training
        module.eval()
        handles = [each.register_forward_pre_hook(self._layer(k), with_kwargs=True) for k, each in enumerate(layers)]
        handles += [each.register_forward_hook(self._returned) for each in layers]
        handles += [each.register_forward_hook(self._other(name, len(layers))) for name, each in others.items()]
        try:
            with torch.no_grad():
                module(inputs)
        finally:
            module.train(was_training)
            for handle in handles:
                handle.remove()
        self.is_chain &= len(self.calls) == len(layers)

    def _layer(self, index: int) -> Callable[..., None]:
        def called(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            right = bool(args) and index == len(self.calls) and (index == 0 or args[0] is self._last)
            self.is_chain &= right
            self.calls[index] = args[1:], kwargs

        return called

    def _returned(self, _: nn.Module, _args: Any, output: Any) -> None:
        self.tuples = isinstance(output, tuple)
        self.is_chain &= not self.tuples or len(output) == 1
        self._last = output[0] if self.tuples else output

    def _other(self, name: str, layers: int) -> Callable[..., None]:
        def called(_: nn.Module, _args: Any, output: Any) -> None:
            if not self.calls:
                self.before.append(name)
                self.replies[name] = output
            elif len(self.calls) == layers and name not in self.after:
                self.after.append(name)

        return called


def _like(one: Any, other: Any) -> Any:
    """The result of a module, with the shapes of its tensors for any batch."""
    return tree_map(lambda a, b: _shaped(a, b) if isinstance(a, Tensor) else a, one, other)


def _shaped(one: Tensor, other: Tensor) -> _Shape:
    sides = (a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))
    return _Shape(tuple(sides), one.dtype)


class _Shape:
    """The shape of a tensor, with ``None`` for the batch, and its type."""

    def __init__(self, sides: tuple[int | None, ...], type: torch.dtype) -> None:
        self._sides, self._type = sides, type

    def zeros(self, batch: int, device: torch.device) -> Tensor:
        return torch.zeros([batch if each is None else each for each in self._sides], dtype=self._type, device=device)


def _given(one: Any, other: Any) -> tuple[list[Any], Any] | None:
    """The other arguments of a layer, of one sample if they are given for each; ``None`` if they are not constant."""
    if one is None or other is None:
        return None
    values, form = tree_flatten(one)
    others, form_of_other = tree_flatten(other)
    if form != form_of_other:
        return None
    constant: list[Any] = []
    for a, b in zip(values, others, strict=True):
        if not isinstance(a, Tensor):
            if a is not b and a != b:
                return None
            constant.append(a)
            continue
        of_batch = a.dim() > 0 and (len(a), len(b)) == (2, 3)
        first, second = (a[:1], b[:1]) if of_batch else (a, b)
        if first.shape != second.shape or not torch.equal(first, second):
            return None
        constant.append((first.clone(), of_batch))
    return constant, form


class _Named(nn.Module):
    """A block with submodules that keep their full names."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for path, module in modules.items():
            *parents, name = path.split(".")
            place: nn.Module = self
            for each in parents:
                if each not in dict(place.named_children()):
                    place.add_module(each, nn.Module())
                place = place.get_submodule(each)
            place.add_module(name, module)


class _Layer(_Named):
    """One layer, with the other arguments that the module gives it."""

    def __init__(self, path: str, layer: nn.Module, given: tuple[list[Any], Any]) -> None:
        super().__init__({path: layer})
        self._layer = (layer,)
        constants, self._form = given
        self._constants: list[Any] = []
        for index, each in enumerate(constants):
            is_tensor = isinstance(each, tuple) and isinstance(each[0], Tensor)
            if is_tensor:
                self.register_buffer(f"_given_{index}", each[0], persistent=False)
            self._constants.append((is_tensor, each[1] if is_tensor else each))

    def forward(self, tap: Tensor) -> Tensor:
        values = []
        for index, (is_tensor, value) in enumerate(self._constants):
            tensor = getattr(self, f"_given_{index}") if is_tensor else None
            expanded = tensor.expand(len(tap), *tensor.shape[1:]) if tensor is not None and value else tensor
            values.append(expanded if is_tensor else value)
        args, kwargs = tree_unflatten(values, self._form)
        output = self._layer[0](tap, *args, **kwargs)
        result: Tensor = output[0] if isinstance(output, tuple) else output
        return result


class _Reached(Exception):  # noqa: N818  (a stop, no error)
    def __init__(self, tap: Tensor) -> None:
        super().__init__()
        self.tap = tap


class _Front(_Named):
    """The computation of a module before its first layer."""

    def __init__(self, module: nn.Module, first: nn.Module, before: Mapping[str, nn.Module]) -> None:
        super().__init__(before)
        self._whole = (module, first)

    def forward(self, inputs: Tensor) -> Tensor:
        def stop(tap: Tensor, *_: Any, **__: Any) -> Tensor:
            raise _Reached(tap)

        module, first = self._whole
        try:
            with _replaced(first, stop):
                module(inputs)
        except _Reached as reached:
            return reached.tap
        raise RuntimeError("the module did not call its first layer")


class _Tail(_Named):
    """The computation of a module after its last layer."""

    def __init__(
        self,
        module: nn.Module,
        layers: list[nn.Module],
        inputs: Inputs,
        *,
        after: Mapping[str, nn.Module],
        before: Mapping[str, nn.Module],
        replies: Mapping[str, Any],
        tuples: bool,
    ) -> None:
        super().__init__(after)
        self._whole = module, layers, {name: each for name, each in before.items() if name not in after}
        self._replies, self._inputs, self._tuples = dict(replies), inputs, tuples

    def forward(self, tap: Tensor) -> Tensor:
        module, layers, before = self._whole
        output = (tap,) if self._tuples else tap

        def reply(name: str) -> Callable[..., Any]:
            def replied(*_: Any, **__: Any) -> Any:
                return tree_map(
                    lambda each: each.zeros(len(tap), tap.device) if isinstance(each, _Shape) else each,
                    self._replies[name],
                )

            return replied

        with ExitStack() as stack:
            for layer in layers:
                stack.enter_context(_replaced(layer, lambda *_, **__: output))
            for name, each in before.items():
                stack.enter_context(_replaced(each, reply(name)))
            result: Tensor = module(self._inputs(len(tap), tap.device))
        return result


@contextmanager
def _replaced(module: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = function
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own
