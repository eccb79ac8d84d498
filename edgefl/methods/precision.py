"""The precision of products in a client's forward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16"]


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context in which convolutions and products use ``precision``; compute losses within it and gradients outside.

    ``bfloat16`` is PyTorch's autocast: products have operands of 8 significant bits and accumulate in float32;
    parameters, their gradient, norms, the logits' cross-entropy and all other sums of edgefl stay float32. The backward
    pass of an operator uses the types of its forward pass. ``tf32`` is a setting of the whole device
    (:func:`~edgefl.training.device.exact_arithmetic`) and, like ``float32``, needs no context.

    >>> one = torch.ones(2, 2)
    >>> with computing("bfloat16", one.device):
    ...     (one @ one).dtype
    torch.bfloat16
    """
    if precision != "bfloat16":
        return nullcontext()
    # No cache: weights are slices of a vector that changes in every step.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
