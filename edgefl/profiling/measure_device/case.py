"""The cases that are timed."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Tuple

import torch
from torch import Tensor

Shape = Tuple[int, ...]
Run = Callable[[], Any]
Maker = Callable[..., Tensor]
"""Makes a tensor; its arguments are the shape."""


class Case(NamedTuple):
    """A computation to time.

    Attributes:
        prepare: makes the tensors and returns the function to time.
        megabytes: approximately how much memory it needs.
    """

    prepare: Callable[[Maker], Run]
    megabytes: float


def channels_last(tensor: Tensor) -> Tensor:
    """Return images and kernels in channels-last format, as edgefl trains them; other tensors unchanged."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
