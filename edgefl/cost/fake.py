"""Tensors of a CPU without numbers: PyTorch chooses the operators that a CPU executes, and they compute only shapes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefl.cost.shortcuts import SHORTCUTS

CPU, META = torch.device("cpu"), torch.device("meta")

DEVICE = torch.ops.prim.device.default
"""PyTorch asks for the device of a tensor by this operator."""


class Fake(Tensor):
    """A tensor that PyTorch treats as one on a CPU, and that has no numbers.

    ``meta`` is the tensor on the device ``meta`` with which its operators compute (:func:`computed`); both have the
    same storage. They are called by a dispatch mode, :class:`~edgefl.cost.recorder.Recorder`: only in one can such a
    tensor be used. PyTorch's own ``FakeTensor`` has the same purpose, but it imports the compiler, which takes as long
    as all of PyTorch, it takes three times as long for an operator, and it differs where a view is changed in place.
    """

    meta: Tensor
    device = CPU
    modes: ClassVar[int] = 0

    @staticmethod
    def of(meta: Tensor) -> "Fake":
        """The tensor of a CPU with the shape, type and storage of one on the device ``meta``."""
        made: Fake = Tensor._make_subclass(
            Fake, meta, meta.requires_grad, dispatch_device=True, device_for_backend_keys=CPU
        )
        torch._C._set_throw_on_mutable_data_ptr(made)  # what would read its memory, such as NumPy, raises an error
        made.meta = meta
        return made

    def __repr__(self, *_: Any) -> str:  # type: ignore[override]
        return f"{self.meta.dtype} {list(self.meta.shape)} without numbers"

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise RuntimeError("a tensor without data is used after the count of a step's operators, which made it")


_REFUSED = Fake.__torch_function__


def recording(modes: int) -> None:
    """Enter, or leave, so many modes in which a :class:`Fake` can be used."""
    Fake.modes += modes
    Fake.__torch_function__ = torch._C._disabled_torch_function_impl if Fake.modes else _REFUSED  # type: ignore[method-assign]


def computed(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """The outputs of an operator some of whose arguments are :class:`Fake`."""
    given: dict[int, Tensor] = {}
    plain = tuple(_plain(value, given) for value in args)
    named = {name: _plain(value, given) for name, value in keywords.items()}
    first = next(_tensors(plain), None)
    alike = len({each.dtype for each in _tensors(plain) if each.is_floating_point()}) == 1
    shortcut = SHORTCUTS.get(func._schema.name.partition("::")[2])
    usual = (
        first is not None and first.is_floating_point() and alike and named.get("dtype") is None and "out" not in named
    )
    result = shortcut(plain) if shortcut is not None and usual else None
    if result is None:
        result = func(*plain, **named)
    if torch.Tag.inplace_view in func.tags:
        with torch._C._DisableTorchDispatch():
            func(*args, **keywords)  # changes the shape of the tensor itself
    return _faked(result, given)


def fake(*shape: int, dtype: torch.dtype = torch.float32) -> Fake:
    """A tensor of this shape.

    >>> fake(2, 3)
    torch.float32 [2, 3] without numbers
    """
    return Fake.of(torch.empty(shape, dtype=dtype, device=META))


def without_numbers(tensor: Tensor) -> bool:
    """True for these tensors, and for those on the device ``meta``."""
    return isinstance(tensor, Fake) or tensor.is_meta


def _plain(value: Any, given: dict[int, Tensor]) -> Any:
    """An argument for tensors on ``meta``; ``given`` gets the original of each of its tensors."""
    if isinstance(value, Tensor):
        plain = value.meta if isinstance(value, Fake) else value if value.is_meta else value.to(META)
        given[id(plain)] = value
        return plain
    if isinstance(value, list | tuple):
        return type(value)(_plain(each, given) for each in value)
    return META if isinstance(value, torch.device) else value


def _faked(result: Any, given: Mapping[int, Tensor]) -> Any:
    if isinstance(result, Tensor):
        return given[id(result)] if id(result) in given else Fake.of(result)
    if isinstance(result, list | tuple):
        return type(result)(_faked(each, given) for each in result)
    return result


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
