"""Distances between predictions for the papers' distillation losses."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def kl_divergence(target: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(softmax(target / T) ‖ softmax(logits / T)), summed over classes, mean over the batch; no factor T².

    Gradients flow to both arguments; detach ``target`` (or compute it without gradient) if it is a fixed teacher.

    Args:
        target: logits of the first prediction ``[batch, classes]``.
        logits: logits of the second prediction ``[batch, classes]``.
        temperature: T.

    >>> import torch
    >>> round(float(kl_divergence(torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.25, 0.75]])))), 6)
    0.143841
    """
    log_p = F.log_softmax(target / temperature, dim=-1)
    log_q = F.log_softmax(logits / temperature, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()
