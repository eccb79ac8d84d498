"""One local step of one client: where the gradient is taken, the loss, its gradient, the new parameters.

The training engine runs it to train, and the cost model runs the same function on tensors without data to count what a
step executes, so that the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from edgefl.learning.objectives.base import Batch, Context, Loss, Objective
from edgefl.learning.precision import Precision, computing
from edgefl.learning.rules.base import LocalOptions, LocalRule

Phase = Literal["forward", "backward", "update"]
"""The parts of a local step, in order; looking ahead (``rule.point``) belongs to the forward part."""


def _unobserved(phase: Phase) -> None:
    """Nobody watches."""


def local_step(  # noqa: PLR0917  (a step is made of this many things; they come in the order of use)
    objective: Objective,
    rule: LocalRule,
    parameters: Tensor,
    buffers: Tensor,
    batch: Batch,
    context: Context,
    memory: dict[str, Tensor],
    options: LocalOptions,
    lr: float,
    *,
    precision: Precision = "float32",
    entering: Callable[[Phase], None] = _unobserved,
) -> tuple[Tensor, Loss]:
    """Take one local step.

    Args:
        objective: the client's loss.
        rule: how its gradient becomes new parameters.
        parameters: the local parameters ``[parameter_count]``; the rule may change them in place.
        buffers: the local buffers ``[buffer_count]``; batch norm's running statistics are updated in place.
        batch: the minibatch.
        context: what the loss reads beside them.
        memory: what the rule carries from step to step; it may change it.
        options: the client's local training options.
        lr: η_t of the round.
        precision: of the loss's products.
        entering: told each phase as it begins; the cost model listens to it.

    Returns:
        The parameters after the step ``[parameter_count]``, and the loss at the gradient's point, detached. A loss that
        does not depend on the parameters has gradient zero.
    """
    entering("forward")
    # .data rather than detach(): parameters and buffers may be halves of one vector, and the running statistics, which
    # the forward pass changes in place, must not invalidate the parameters' views.
    leaf = rule.point(parameters, memory, lr).data.requires_grad_()
    with computing(precision, leaf.device):
        loss = objective.loss(context.model.layout.weights(leaf, buffers), batch, context)
    entering("backward")
    if loss.total.requires_grad:
        (gradient,) = torch.autograd.grad(loss.total, leaf, allow_unused=True, materialize_grads=True)
    else:
        gradient = torch.zeros_like(parameters)
    loss = Loss(loss.total.detach(), loss.cross_entropy.detach())
    entering("update")
    return rule.update(parameters, gradient, memory, options, lr), loss
