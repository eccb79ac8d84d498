"""How the layers of a model behave during one call: training or evaluation, batch statistics, width, depth.

The mode is an input of the call, not a state of the module, so that one skeleton serves the local model, its frozen
copies and sub-networks side by side. It travels in a context variable, which each thread has for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mode:
    """What a layer must know beside its input.

    Attributes:
        training: batch statistics in batch norm, dropped blocks in Stochastic Depth.
        track: batch norm updates its running statistics (off for frozen copies and sub-networks).
        width: share of the leading channels that slimmable layers use, in (0, 1].
        keep: Stochastic Depth's draw for this step, one 0/1 number per residual block, or ``None``.
        unfolded: convolutions are products of matrices; off for depthwise ones. It changes rounding only.
        keep_probability: each residual block's probability of being kept, for evaluation; ``None`` without it.
    """

    training: bool = True
    track: bool = True
    width: float = 1.0
    keep: Tensor | None = None
    keep_probability: tuple[float, ...] | None = None
    unfolded: bool = False


_MODE: ContextVar[Mode] = ContextVar("mode", default=Mode())  # noqa: B039  (frozen)


def mode() -> Mode:
    """The mode of the call under way."""
    return _MODE.get()


@contextmanager
def using(**changes: Any) -> Iterator[Mode]:
    """Run calls in a mode that differs from the present one by ``changes``.

    >>> with using(width=0.25, track=False):
    ...     mode().width, mode().training
    (0.25, True)
    """
    token = _MODE.set(replace(_MODE.get(), **changes))
    try:
        yield _MODE.get()
    finally:
        _MODE.reset(token)
