"""PyTorch's settings that change numbers, and their values while edgefl computes.

The caller of edgefl may have changed any of them. No figure depends on that: every command and every job runs in
:func:`neutral_torch`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from operator import attrgetter
from typing import Any, Literal

INTRA_OP_THREADS = 1
"""Threads inside one operator while edgefl computes: sums that are split over threads round differently.

edgefl uses several cores by running jobs in parallel.
"""

Precision = Literal["float32", "tf32", "bfloat16"]
"""The precision of convolutions and products in a client's forward pass."""

# By function: torch.get_… and torch.set_…. The precision of products writes some of the flags below.
_FUNCTIONS = {"deterministic_debug_mode": 0, "float32_matmul_precision": "highest"}

# Attributes of torch.backends.
_FLAGS = {
    "cuda.matmul.allow_tf32": False,
    "cudnn.allow_tf32": True,
    "fp32_precision": "none",
    # Once a program has used these newer names, PyTorch refuses to read the older ones above.
    "cuda.matmul.fp32_precision": "ieee",
    "cudnn.conv.fp32_precision": "tf32",
    "cudnn.rnn.fp32_precision": "tf32",
    "mkldnn.fp32_precision": "none",
    "mkldnn.matmul.fp32_precision": "none",
    "mkldnn.conv.fp32_precision": "none",
    "mkldnn.rnn.fp32_precision": "none",
    "mkldnn.enabled": True,
    "mkldnn.deterministic": False,
    "cudnn.enabled": True,
    "cudnn.benchmark": False,
    "cudnn.deterministic": False,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": True,
    "cuda.matmul.allow_bf16_reduced_precision_reduction": True,
}


_Setting = tuple[Callable[[], Any], Callable[[Any], object], Any]
"""Functions that read and write a setting, and its neutral value."""


@cache
def _settings() -> list[_Setting]:
    import torch

    def flag(path: str, neutral: Any) -> _Setting:
        parent, _, name = f"backends.{path}".rpartition(".")
        read, owner = attrgetter(f"{parent}.{name}"), attrgetter(parent)
        return lambda: read(torch), lambda value: setattr(owner(torch), name, value), neutral

    kernels = torch.backends.cuda  # of attention
    return [
        (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        *((getattr(torch, f"get_{each}"), getattr(torch, f"set_{each}"), _FUNCTIONS[each]) for each in _FUNCTIONS),
        *(flag(path, neutral) for path, neutral in _FLAGS.items()),
        (kernels.flash_sdp_enabled, kernels.enable_flash_sdp, True),
        (kernels.mem_efficient_sdp_enabled, kernels.enable_mem_efficient_sdp, True),
        (kernels.math_sdp_enabled, kernels.enable_math_sdp, True),
        (torch.get_num_threads, torch.set_num_threads, INTRA_OP_THREADS),
        *(
            (partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device), False)
            for device in ("cpu", "cuda")
        ),
        # PyTorch sets, but does not read it; Python's own arithmetic uses the same flag of the processor.
        (lambda: sys.float_info.min * 0.5 == 0.0, torch.set_flush_denormal, False),
    ]


def present_values() -> list[Any]:
    """None where this version of PyTorch has no such setting, or refuses to read it."""
    return [_read(read) for read, _, _ in _settings()]


def _read(read: Callable[[], Any]) -> Any:
    with suppress(AttributeError, RuntimeError):
        return read()
    return None


def _write(values: Iterable[Any]) -> None:
    for (read, write, _), value in zip(_settings(), values, strict=True):
        if value is not None and _read(read) != value:
            with suppress(AttributeError, RuntimeError):
                write(value)


@contextmanager
def neutral_torch() -> Iterator[None]:
    """Run the block with neutral settings of PyTorch, and restore the caller's settings, also after an error.

    A block inside starts with neutral settings again. Works as a decorator too.

    >>> import torch
    >>> with torch.inference_mode(), neutral_torch():
    ...     torch.is_grad_enabled()
    True
    """
    torch = sys.modules.get("torch")
    if torch is None:  # its settings are neutral when it is imported
        yield
        return
    before = present_values()
    try:
        with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
            if torch.get_default_device().type != "cpu":
                stack.enter_context(torch.device("cpu"))
            _write(neutral for _, _, neutral in _settings())
            yield
    finally:
        _write(before)


def computing(precision: Precision, device: Any) -> AbstractContextManager[object]:
    """A context in which convolutions and products use ``precision``; compute losses within it and gradients outside.

    ``bfloat16`` is PyTorch's autocast: products have operands of 8 significant bits and accumulate in float32;
    parameters, their gradient, norms, the logits' cross-entropy and all other sums of edgefl stay float32. The backward
    pass of an operator uses the types of its forward pass. ``tf32`` is a setting of the whole device
    (``exact_arithmetic``) and, like ``float32``, needs no context.

    >>> import torch
    >>> one = torch.ones(2, 2)
    >>> with computing("bfloat16", one.device):
    ...     (one @ one).dtype
    torch.bfloat16
    """
    if precision != "bfloat16":
        return nullcontext()
    import torch

    # No cache: weights are slices of a vector that changes in every step.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
