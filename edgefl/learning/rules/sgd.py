"""Stochastic gradient descent as torch does it: clip, weight decay, momentum, step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from edgefl.learning.rules.base import LocalOptions, LocalRule


def clipped(gradient: Tensor, options: LocalOptions) -> Tensor:
    """The gradient, in place, with an L2 norm of ``clip_norm`` at most (``torch.nn.utils.clip_grad_norm_``)."""
    if options.clip_norm is None:
        return gradient
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient.mul_((options.clip_norm / (norm + 1e-6)).clamp(max=1.0))


def direction(parameters: Tensor, gradient: Tensor, options: LocalOptions) -> Tensor:
    """The clipped gradient plus coupled weight decay, in place: clipping sees the loss alone, decay comes after it."""
    gradient = clipped(gradient, options)
    return gradient.add_(parameters, alpha=options.weight_decay) if options.weight_decay else gradient


class Sgd(LocalRule):
    """θ ← θ - η_t d with d the clipped gradient plus weight decay, through (Nesterov) momentum if there is any.

    The momentum starts at zero every round: clients carry no optimiser state from round to round.
    """

    def begin(
        self, received: Tensor, vectors: Mapping[str, Tensor], options: LocalOptions, steps: int
    ) -> dict[str, Tensor]:
        """The velocity, zero, if there is momentum."""
        return {"velocity": torch.zeros_like(received)} if options.momentum else {}

    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float
    ) -> Tensor:
        """One step of ``torch.optim.SGD``; the gradient is overwritten, the parameters are not."""
        step = direction(parameters, gradient, options)
        if options.momentum:
            memory["velocity"] = memory["velocity"] * options.momentum + step
            velocity = memory["velocity"]
            step = step.add(velocity, alpha=options.momentum) if options.nesterov else velocity
        return parameters.sub(step, alpha=lr)
