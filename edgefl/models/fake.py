"""Tensors of a CPU without numbers: PyTorch chooses the operators that a CPU executes, and they compute only shapes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from traceback import walk_stack
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.utils._python_dispatch import TorchDispatchMode

from edgefl.models.data_dependence import DataDependentError, argument_of, data_dependence, whose
from edgefl.models.shortcuts import SHORTCUTS

CPU, META = torch.device("cpu"), torch.device("meta")

DEVICE = torch.ops.prim.device.default
"""PyTorch asks for the device of a tensor by this operator."""


class Fake(Tensor):
    """A tensor that PyTorch treats as one on a CPU, and that has no numbers, in a context :class:`WithoutNumbers`.

    Its operators compute with ``meta`` (:func:`computed`), which has the same storage. PyTorch's ``FakeTensor`` imports
    the compiler, takes three times as long, and differs where a view is changed in place.
    """

    meta: Tensor
    device = CPU
    is_meta = True  # such as for trunc_normal_, which draws until all numbers are in its range
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

    def __deepcopy__(self, memo: dict[int, Any]) -> "Fake":
        return memo.setdefault(id(self), Fake.of(self.meta.detach()))  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise RuntimeError("a tensor without data is used after the count of a step's operators, which made it")


_REFUSED = Fake.__torch_function__


SMALL = 1 << 16
"""Numbers of the largest tensor that has them where others are made without: constants, such as positions of tokens."""


class WithoutNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which new tensors, unless they are small and not random, and what is computed of them are fake.

    Operators that depend on their numbers raise a DataDependentError; ``draws`` has those of the global generator.
    """

    with_data = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws: dict[str, str] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skipping would import the compiler, a second or two, and nothing is compiled in this mode."""
        return False

    def __enter__(self) -> Self:
        _entered(1)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        _entered(-1)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is DEVICE:
            return CPU
        keywords = kwargs or {}
        if not self.is_whole(func) and func._can_decompose():  # in inference mode PyTorch does not do it
            TorchDispatchMode.__enter__(self)  # type: ignore[no-untyped-call]
            try:
                return func.decompose(*args, **keywords)
            finally:
                TorchDispatchMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]
        given = [*args, *(value for key, value in keywords.items() if key != "out")]
        inputs = list(tensors_in(given))
        # Constants of the model have numbers, and the random inputs of a variant (Objective.variants).
        numberless = not self.with_data and any(each.is_meta for each in inputs)
        dependence = data_dependence(func, args, keywords) if numberless else None
        if dependence is not None:
            raise DataDependentError(dependence)
        if draws_globally(func, args, given):
            self.draws[_name(func).removesuffix("_")] = whose(frame for frame, _ in walk_stack(None))
        if any(isinstance(tensor, Fake) for tensor in inputs):
            result = computed(func, args, keywords)
        else:
            result = func(*args, **keywords) if inputs or self.with_data else _constant(func, args, keywords)
        self.executed(func, args, keywords, inputs, result)
        return result

    def is_whole(self, func: Any) -> bool:
        """True for an operator that is executed as it is, and not as those that it consists of."""
        return False

    def executed(
        self, func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], inputs: list[Tensor], result: Any
    ) -> None:
        """Called after each operator; by default nothing."""


def numberless() -> bool:
    """True in a context :class:`WithoutNumbers`."""
    return Fake.modes > 0


_validates = Distribution._validate_args


def _entered(modes: int) -> None:
    global _validates  # noqa: PLW0603
    if not Fake.modes:
        _validates = Distribution._validate_args
    Fake.modes += modes
    # Distributions check the numbers of their parameters, which are right or wrong in training.
    Distribution.set_default_validate_args(_validates and not Fake.modes)
    torch.backends.mha.set_fastpath_enabled(not Fake.modes)  # it packs the tokens that padding leaves
    Fake.__torch_function__ = torch._C._disabled_torch_function_impl if Fake.modes else _REFUSED  # type: ignore[method-assign]


def draws_globally(func: Any, args: tuple[Any, ...], given: Sequence[Any]) -> bool:
    """True for an operator that draws from PyTorch's global generator; ``given`` are all its arguments."""
    if torch.Tag.nondeterministic_seeded not in func.tags or any(isinstance(one, torch.Generator) for one in given):
        return False
    return all(argument_of(func, share, args) != 0 for share in ("dropout_p", "dropout"))


def _name(func: Any) -> str:
    name: str = func._schema.name.partition("::")[2]
    return name


def _constant(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """A new tensor: with its numbers if it is small and not random."""
    if keywords.get("device") == META or not any(each.name == "device" for each in func._schema.arguments):
        return func(*args, **keywords)
    shape = func(*args, **{**keywords, "device": META})
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    return Fake.of(shape) if drawn or shape.numel() > SMALL else func(*args, **keywords)


def as_float32(module: nn.Module) -> nn.Module:
    """The module with parameters and buffers of this type, as its own ``float()``."""
    module = module.float()
    for tensor in chain(module.parameters(), module.buffers()):
        if isinstance(tensor, Fake):
            tensor.meta = tensor.meta.to(tensor.dtype)
    return module


def keep_shapes(module: nn.Module) -> None:
    """Put tensors on the device ``meta`` in the places of a module's fake ones, for use outside of the context."""
    made: dict[int, tuple[Tensor, Tensor]] = {}
    for layer in module.modules():
        for held in (layer._parameters, layer._buffers):
            for name, tensor in held.items():
                if isinstance(tensor, Fake):
                    plain = tensor.meta.detach()
                    if isinstance(tensor, nn.Parameter):
                        plain = nn.Parameter(plain, requires_grad=tensor.requires_grad)
                    held[name] = made.setdefault(id(tensor), (tensor, plain))[1]  # type: ignore[assignment]


def computed(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """The outputs of an operator some of whose arguments are :class:`Fake`."""
    given: dict[int, Tensor] = {}
    plain = tuple(_plain(value, given) for value in args)
    named = {name: _plain(value, given) for name, value in keywords.items()}
    types = [each.dtype for each in tensors_in(plain)]
    alike = bool(types) and {each for each in types if each.is_floating_point} == {types[0]}
    shortcut = SHORTCUTS.get(_name(func)) if alike and named.get("dtype") is None and "out" not in named else None
    result = None if shortcut is None else shortcut(plain)
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


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values, and in lists and tuples of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
