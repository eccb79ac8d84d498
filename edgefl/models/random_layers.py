"""Functions that are replaced while a model runs: random ones draw from a key, views may copy, masks are used.

PyTorch's random functions become a hash of the local step's key, the number of the call, and the position of the
element (SplitMix64; Steele, Lea and Flood 2014). So a job's result depends on nothing else, with every engine, and
where clients are stacked or a step is traced: the key is a tensor.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
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

    With ``recomputes``, PyTorch's checkpointing sets back the global generator, whose seed therefore counts the calls.
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
        number = (self._next_call() * _FIRST + 2**63) % 2**64 - 2**63  # modulo 2^64, as int64 has it
        start = self._key + number
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


def _shifted(state: Tensor, by: int) -> Tensor:
    """The logical shift to the right, of numbers that PyTorch shifts with their sign."""
    return (state >> by) & ((1 << (64 - by)) - 1)


def _whole(input: Tensor) -> tuple[int, ...]:
    return tuple(input.shape)


def _features(input: Tensor) -> tuple[int, ...]:
    return (*input.shape[:2], *(1,) * (input.dim() - 2))


def _dropout(shape: Callable[[Tensor], tuple[int, ...]]) -> Callable[..., Tensor]:
    def dropped(
        self: RandomFunctions, input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any
    ) -> Tensor:
        return self.dropped(input, shape(input), p) if training else input

    return dropped


_SELU_LEAST = -1.7580993408473766
"""The value of SELU for a dropped input, minus its scale times its slope (Klambauer et al. 2017)."""


def _alpha(shape: Callable[[Tensor], tuple[int, ...]]) -> Callable[..., Tensor]:
    """Alpha dropout (Klambauer et al. 2017): mean 0 and variance 1 remain those of the output."""

    def dropped(
        self: RandomFunctions, input: Tensor, p: float = 0.5, training: bool = False, *_: Any, **__: Any
    ) -> Tensor:
        if not training or p == 0:
            return input
        if p == 1:
            return torch.zeros_like(input)
        kept = self.uniform(shape(input)) >= p
        scale: float = ((1 - p) * (1 + p * _SELU_LEAST**2)) ** -0.5
        return scale * (torch.where(kept, input, _SELU_LEAST) - p * _SELU_LEAST)

    return dropped


def _rrelu(
    self: RandomFunctions, input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, **_: Any
) -> Tensor:
    slope = self.uniform(input.shape) * (upper - lower) + lower if training else (lower + upper) / 2
    return torch.where(input < 0, input * slope, input)


def _gumbel_softmax(
    self: RandomFunctions, logits: Tensor, tau: float = 1, hard: bool = False, *_: Any, dim: int = -1, **__: Any
) -> Tensor:
    soft = ((logits - _exponential(self, logits.shape).log()) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = F.one_hot(soft.argmax(dim), soft.shape[dim]).to(soft.dtype).movedim(-1, dim)
    return chosen - soft.detach() + soft


def _exponential(self: RandomFunctions, shape: Sequence[int], rate: float = 1.0) -> Tensor:
    return -torch.log1p(-self.uniform(shape)).clamp_max(-(2.0**-25)) / rate


def _written(drawn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that writes what is drawn into its first argument."""

    def write(self: RandomFunctions, input: Tensor, *args: Any, **options: Any) -> Tensor:
        numbers = drawn(self, input.shape, *args, **options).to(input.dtype)
        if is_batchedtensor(numbers) and not is_batchedtensor(input):
            return numbers  # vmap cannot write the numbers of several clients into one tensor
        return input.copy_(numbers)

    return write


def _bernoulli(self: RandomFunctions, input: Tensor, p: float | None = None, **_: Any) -> Tensor:
    return (self.uniform(input.shape) < (input if p is None else p)).to(input.dtype)


def _normal(self: RandomFunctions, mean: Any = 0.0, std: Any = 1.0, size: Any = None, **options: Any) -> Tensor:
    tensors = [each for each in (mean, std) if isinstance(each, Tensor)]
    shape = size or torch.broadcast_tensors(*tensors)[0].shape  # type: ignore[no-untyped-call]
    drawn: Tensor = mean + std * self.normal(shape)
    return drawn.to(options.get("dtype") or torch.float32)


def _drawing(draw: Callable[[RandomFunctions, Sequence[int]], Tensor]) -> Callable[..., Tensor]:
    """A function that makes a tensor like another, or of a size."""

    def drawn(self: RandomFunctions, *given: Any, **options: Any) -> Tensor:
        first: Any = given[0] if given else options.get("input", options.get("size"))
        dtype = options.get("dtype") or (first.dtype if isinstance(first, Tensor) else torch.float32)
        shape = first.shape if isinstance(first, Tensor) else given if isinstance(first, int) else first
        return draw(self, shape).to(dtype)

    return drawn


def _attention(  # noqa: PLR0917  (PyTorch's arguments)
    self: RandomFunctions,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As PyTorch computes it on a CPU if attention weights are dropped: product, softmax, dropout, product."""
    if dropout_p == 0:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if masked else scores + attn_mask
    weights = scores.softmax(-1)
    return self.dropped(weights, weights.shape, dropout_p) @ value


multi_head_attention: Callable[..., Any] = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**vars(F), "has_torch_function": lambda _: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)
"""PyTorch's function, whose own lines call functions that may be replaced: it asks for replacements of itself only."""


def _called_in_parts(self: RandomFunctions, *args: Any, **options: Any) -> Any:
    TorchFunctionMode.__enter__(self)  # type: ignore[no-untyped-call]
    try:
        return multi_head_attention(*args, **options)
    finally:
        TorchFunctionMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]


_REPLACED: dict[Any, Callable[..., Tensor]] = {
    **dict.fromkeys((F.dropout, torch.dropout), _dropout(_whole)),
    **dict.fromkeys((F.dropout1d, F.dropout2d, F.dropout3d, torch.feature_dropout), _dropout(_features)),
    F.alpha_dropout: _alpha(_whole),
    F.feature_alpha_dropout: _alpha(_features),
    F.rrelu: _rrelu,
    F.gumbel_softmax: _gumbel_softmax,
    torch.bernoulli: _bernoulli,
    Tensor.bernoulli: _bernoulli,
    Tensor.bernoulli_: _written(lambda self, shape, p=0.5, **_: self.uniform(shape) < p),
    Tensor.normal_: _written(lambda self, shape, mean=0.0, std=1.0, **_: mean + std * self.normal(shape)),
    Tensor.uniform_: _written(lambda self, shape, low=0.0, high=1.0, **_: low + (high - low) * self.uniform(shape)),
    Tensor.exponential_: _written(_exponential),
    torch.normal: _normal,
    torch.randperm: lambda self, n, **options: self.uniform((n,)).argsort().to(options.get("dtype") or torch.int64),
    torch.rand_like: _drawing(RandomFunctions.uniform),
    torch.rand: _drawing(RandomFunctions.uniform),
    torch.randn_like: _drawing(RandomFunctions.normal),
    torch.randn: _drawing(RandomFunctions.normal),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _called_in_parts,
}


class ViewsAsReshapes(TorchFunctionMode):
    """Lets ``tensor.view(sizes)`` copy where it cannot be a view.

    Convolutions here store channels last, so that the usual ``maps.view(batch, -1)`` would be an error.

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


class UsedMasks(TorchFunctionMode):
    """Lets models of transformers use each mask, also one that is all true, unless no text is ``padded``."""

    def __init__(self, *, padded: bool = True) -> None:
        super().__init__()
        self._all_true = not padded

    def __enter__(self) -> Self:
        masks: Any = sys.modules.get("transformers.masking_utils", self)  # not in versions before 4.53
        self._masks, self._replaced = masks, getattr(masks, "fast_all", None)
        masks.fast_all = lambda _: self._all_true
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._masks.fast_all = self._replaced

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (torch.all, Tensor.all) and len(args) == 1 and not kwargs:
            return torch.zeros((), dtype=torch.bool)
        if func is Tensor.__contains__:  # a padding token, about which it would warn
            return False
        return func(*args, **(kwargs or {}))
