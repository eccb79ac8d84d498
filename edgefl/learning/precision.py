"""In which precision a client's forward pass computes its products."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16"]


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A block whose convolutions and products are computed in ``precision``; a loss belongs into it, its gradient not.

    ``bfloat16`` is PyTorch's autocast: products take operands of 8 significant bits and add up in float32; parameters,
    their gradient, norms and the logits' cross-entropy stay float32, and so does everything else that edgefl adds up.
    The backward pass of an operator has the types of its forward pass. ``tf32`` is a setting of the whole device
    (:func:`~edgefl.learning.engine.device.exact_arithmetic`) and, like ``float32``, needs no block.

    >>> one = torch.ones(2, 2)
    >>> with computing("bfloat16", one.device):
    ...     (one @ one).dtype
    torch.bfloat16
    """
    if precision != "bfloat16":
        return nullcontext()
    # Weights are slices of a vector that changes with every step: there is nothing to keep between two calls.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
