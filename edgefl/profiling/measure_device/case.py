"""Something to time."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Tuple

import torch
from torch import Tensor

Shape = Tuple[int, ...]
Run = Callable[[], Any]
Maker = Callable[..., Tensor]
"""Makes a tensor of the shape that its arguments say."""


class Case(NamedTuple):
    """Something to time.

    Attributes:
        prepare: makes the tensors and returns what is timed.
        megabytes: about the memory that it needs.
    """

    prepare: Callable[[Maker], Run]
    megabytes: float


def channels_last(tensor: Tensor) -> Tensor:
    """Images and kernels lie channels-last, as edgefl trains them."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
