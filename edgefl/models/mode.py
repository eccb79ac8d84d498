"""The mode of layers during one call: an input of it, in a context variable, so that one skeleton serves all copies."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode of a call, which layers read in addition to their input."""

    training: bool = True  # batch statistics in batch norm, dropped blocks in Stochastic Depth
    track: bool = True  # batch norm updates its running statistics (off for frozen copies and sub-networks)
    width: float = 1.0  # share of the leading channels that slimmable layers use, in (0, 1]
    keep: Tensor | None = None  # Stochastic Depth's draw for this step, one 0/1 number per residual block; or None
    # indices of the residual blocks that are skipped, as a device does where ``keep`` is 0
    dropped: frozenset[int] = frozenset()
    # each residual block's probability of being kept, for evaluation; None without it
    keep_probability: tuple[float, ...] | None = None
    # the outputs of internal classifiers are appended to it; None: they are not computed
    exits: list[Tensor] | None = None
    ensemble: bool = False  # a model with internal classifiers returns the mean of all its classifiers' outputs


_MODE: ContextVar[Mode] = ContextVar("mode", default=Mode())  # noqa: B039  (frozen)


def mode() -> Mode:
    """The mode of the current call."""
    return _MODE.get()


@contextmanager
def using(**changes: Any) -> Iterator[Mode]:
    """Run calls in the current mode with ``changes``.

    >>> with using(width=0.25, track=False):
    ...     mode().width, mode().training
    (0.25, True)
    """
    token = _MODE.set(replace(_MODE.get(), **changes))
    try:
        yield _MODE.get()
    finally:
        _MODE.reset(token)
