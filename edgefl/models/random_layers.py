"""Functions of PyTorch that are replaced while a model runs: random ones draw from a key, and views may copy.

A local step has one key, a number that its job determines. While a loss runs, PyTorch's random functions (dropout,
stochastic depth) are replaced by a hash of the key, the number of the call in the step, and the position of the element
(SplitMix64; Steele, Lea and Flood 2014). So a job's result depends on nothing else, is the same with every engine, and
stays so where clients are stacked or a step is traced: the key is a tensor.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.overrides import TorchFunctionMode

KEY = "random layers"
"""The name of the key among the random inputs of a step."""

_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB


def drawn_from(draws: Mapping[str, Tensor], *, recomputes: bool = False) -> AbstractContextManager[object]:
    """The context in which a loss runs: random functions draw from the step's key, if there is one."""
    key = draws.get(KEY)
    return nullcontext() if key is None else RandomFunctions(key, recomputes=recomputes)


class RandomFunctions(TorchFunctionMode):
    """Replaces PyTorch's random functions; ``key`` is one int64 number.

    With ``recomputes``, activations may be computed again in the backward pass, from the same numbers. PyTorch's
    checkpointing then sets back the state of the global generator, whose seed therefore counts the calls.
    """

    def __init__(self, key: Tensor, *, recomputes: bool = False) -> None:
        super().__init__()
        self._key = key
        self._calls = 0
        self._recomputes = recomputes
        self._outside: Tensor | None = None

    def __enter__(self) -> Self:
        if self._recomputes:
            self._outside = torch.default_generator.get_state()
            torch.default_generator.manual_seed(self._calls)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self._outside is not None:
            torch.default_generator.set_state(self._outside)

    def _next_call(self) -> int:
        if self._recomputes:
            self._calls = torch.default_generator.initial_seed()
            torch.default_generator.manual_seed(self._calls + 1)
        self._calls += 1
        return self._calls

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        own = kwargs is not None and kwargs.get("generator") is not None  # the module's own generator
        replacement = None if own else _REPLACED.get(func)
        return func(*args, **(kwargs or {})) if replacement is None else replacement(self, *args, **(kwargs or {}))

    @property
    def used(self) -> bool:
        return self._calls > 0

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Numbers in [0, 1), float32, on the key's device."""
        start = self._key + _signed(self._next_call() * _FIRST)
        state = torch.arange(math.prod(shape), device=self._key.device) * _GAMMA + start
        state = (state ^ _shifted(state, 30)) * _FIRST
        state = (state ^ _shifted(state, 27)) * _SECOND
        return _shifted(state, 40).to(torch.float32).mul(2.0**-24).view(tuple(shape))

    def normal(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers, float32 (Box and Muller 1958)."""
        radius = torch.sqrt(-2 * torch.log1p(-self.uniform(shape)))
        return radius * torch.cos(2 * torch.pi * self.uniform(shape))

    def dropped(self, input: Tensor, shape: Sequence[int], p: float) -> Tensor:
        """The input with elements of ``shape``, which broadcasts to its own, set to 0 with probability ``p``."""
        if p == 0:
            return input
        return input * ((self.uniform(shape) >= p).to(input.dtype) / (1 - p)) if p < 1 else torch.zeros_like(input)


def backward_of(loss: Tensor) -> None:
    """``loss.backward()``, in which functions stay replaced: PyTorch's own leaves the mode of functions."""
    engine = torch.autograd.Variable._execution_engine
    options = {"allow_unreachable": True, "accumulate_grad": True}
    engine.run_backward((loss,), (torch.ones_like(loss),), False, False, (), **options)


def _signed(number: int) -> int:
    """The number modulo 2^64, as int64 has it."""
    return (number + 2**63) % 2**64 - 2**63


def _shifted(state: Tensor, by: int) -> Tensor:
    """The logical shift to the right, of numbers that PyTorch shifts with their sign."""
    return (state >> by) & ((1 << (64 - by)) - 1)


def _dropout(self: RandomFunctions, input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> Tensor:
    return self.dropped(input, input.shape, p) if training else input


def _feature_dropout(
    self: RandomFunctions, input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any
) -> Tensor:
    shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    return self.dropped(input, shape, p) if training else input


def _bernoulli_(self: RandomFunctions, input: Tensor, p: float | Tensor = 0.5, **_: Any) -> Tensor:
    drawn = (self.uniform(input.shape) < p).to(input.dtype)
    if is_batchedtensor(drawn) and not is_batchedtensor(input):
        return drawn  # vmap cannot write the numbers of several clients into one tensor
    return input.copy_(drawn)


def _bernoulli(self: RandomFunctions, input: Tensor, p: float | None = None, **_: Any) -> Tensor:
    return (self.uniform(input.shape) < (input if p is None else p)).to(input.dtype)


def _like(draw: Callable[[RandomFunctions, Sequence[int]], Tensor]) -> Callable[..., Tensor]:
    def drawn(self: RandomFunctions, input: Tensor, **options: Any) -> Tensor:
        return draw(self, input.shape).to(options.get("dtype") or input.dtype)

    return drawn


def _sized(draw: Callable[[RandomFunctions, Sequence[int]], Tensor]) -> Callable[..., Tensor]:
    def drawn(self: RandomFunctions, *size: Any, **options: Any) -> Tensor:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return draw(self, shape).to(options.get("dtype") or torch.float32)

    return drawn


def _attention(_: RandomFunctions, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Tensor:
    if (options.get("dropout_p") or (args[1] if len(args) > 1 else 0.0)) > 0:
        raise RuntimeError(
            "scaled_dot_product_attention drops attention weights, which cannot be drawn from a job's key; set the "
            "attention's dropout to 0"
        )
    return F.scaled_dot_product_attention(query, key, value, *args, **options)


_REPLACED: dict[Any, Callable[..., Tensor]] = {
    F.dropout: _dropout,
    torch.dropout: _dropout,
    F.dropout1d: _feature_dropout,
    F.dropout2d: _feature_dropout,
    F.dropout3d: _feature_dropout,
    torch.feature_dropout: _feature_dropout,
    torch.bernoulli: _bernoulli,
    Tensor.bernoulli: _bernoulli,
    Tensor.bernoulli_: _bernoulli_,
    torch.rand_like: _like(RandomFunctions.uniform),
    torch.rand: _sized(RandomFunctions.uniform),
    torch.randn_like: _like(RandomFunctions.normal),
    torch.randn: _sized(RandomFunctions.normal),
    F.scaled_dot_product_attention: _attention,
}


class ViewsAsReshapes(TorchFunctionMode):
    """Lets ``tensor.view(sizes)`` copy where it cannot be a view.

    Convolutions here store channels last, so that ``maps.view(batch, -1)``, which is common in ordinary modules, would
    be an error.

    >>> maps = torch.arange(8).view(1, 2, 2, 2).to(memory_format=torch.channels_last)
    >>> with ViewsAsReshapes():
    ...     maps.view(1, -1).tolist()
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.view and not kwargs and isinstance(args[1], int | tuple | list):
            return args[0].reshape(*args[1:])
        if func is Tensor.view_as:
            return args[0].reshape(args[1].shape)
        return func(*args, **(kwargs or {}))
