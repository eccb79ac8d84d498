"""Distances between predictions, as the distillation losses of the papers use them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def kl_divergence(target: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(softmax(target / T) ‖ softmax(logits / T)), summed over classes, mean over the batch; no factor T².

    Gradients flow to both arguments; detach ``target`` (or make it without gradient) where it is a fixed teacher.

    Args:
        target: logits of the prediction in the first place ``[batch, classes]``.
        logits: logits of the prediction in the second place ``[batch, classes]``.
        temperature: T.

    >>> import torch
    >>> round(float(kl_divergence(torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.25, 0.75]])))), 6)
    0.143841
    """
    log_p = F.log_softmax(target / temperature, dim=-1)
    log_q = F.log_softmax(logits / temperature, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()
