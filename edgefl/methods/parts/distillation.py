"""Distances between predictions for the papers' distillation losses, and the loss of hybrid paths."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from edgefl.methods.parts.objective import Context, Loss, Objective


def kl_divergence(
    target: Tensor, logits: Tensor, temperature: float = 1.0, mean: Callable[[Tensor], Tensor] = torch.mean
) -> Tensor:
    """KL(softmax(target / T) ‖ softmax(logits / T)), summed over classes, mean over the batch; no factor T².

    Both arguments are logits ``[batch, classes]``, or ``[batch, length, tokens]`` with the ``mean`` over the places
    that count (:meth:`Context.mean`). Gradients flow to both; detach ``target`` (or compute it without gradient) if it
    is a fixed teacher.

    >>> import torch
    >>> round(float(kl_divergence(torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.25, 0.75]])))), 6)
    0.143841
    """
    log_p = F.log_softmax(target / temperature, dim=-1)
    log_q = F.log_softmax(logits / temperature, dim=-1)
    return mean((log_p.exp() * (log_p - log_q)).sum(dim=-1))


class HybridPaths(Objective):
    """Cross-entropy, and the cross-entropy and the divergence of paths that mix local and received blocks."""

    needs = frozenset({"logits", "blocks"})
    frozen = frozenset({"received"})

    lambda_1: float = Field(default=1.0, ge=0, description="weight λ1 of the hybrid paths' cross-entropy")
    lambda_2: float = Field(default=1.0, ge=0, description="weight λ2 of the divergence from the hybrid paths")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the divergence")

    def path_loss(
        self, context: Context, logits: Tensor, hybrids: Sequence[Tensor], labels: Tensor, divisor: int
    ) -> Loss:
        """CE(z_L) + (λ1/d) Σ_m CE(z_H^m) + (λ2/d) Σ_m KL(softmax(z_H^m/T) ‖ softmax(z_L/T)).

        FedMLB Eqs. 5-8; FedBR Eqs. 15-18, with the same order of arguments. z_L are the local path's ``logits``
        ``[batch, classes]``, z_H^m those of the ``hybrids``, d is the ``divisor``. Nothing is detached: the hybrid
        prediction is the first argument of the divergence and receives gradient as well, and there is no factor T².
        For a language model a token is a class, and all means are over the places of the batch that count.
        """
        cross_entropy, mean = context.loss(logits, labels), context.mean(labels)
        if not hybrids:
            return Loss(cross_entropy, cross_entropy)
        hard = torch.stack([context.loss(hybrid, labels) for hybrid in hybrids]).sum() / divisor
        apart = [kl_divergence(hybrid, logits, self.temperature, mean) for hybrid in hybrids]
        soft = torch.stack(apart).sum() / divisor
        return Loss(cross_entropy + self.lambda_1 * hard + self.lambda_2 * soft, cross_entropy)
