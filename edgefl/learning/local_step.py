"""One local step of one client: where the gradient is taken, the loss, its gradient, the new parameters.

The training engine runs it to train, and the cost model runs the same function on tensors without data to count what a
step executes, so that the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from edgefl.learning.models.layout import Layout, Weights
from edgefl.learning.objectives.base import Batch, Context, Loss, Objective
from edgefl.learning.precision import Precision, computing
from edgefl.learning.rules.base import LocalOptions, LocalRule

Phase = Literal["forward", "backward", "update"]
"""The parts of a local step, in order; looking ahead (``rule.point``) belongs to the forward part."""


def _unobserved(phase: Phase) -> None:
    """Nobody watches."""


class Leaves:
    """The tensors by which losses are differentiated: a vector's, and the same ones as long as the vector is the same.

    A rule that steps in place leaves the vector where it is, so a job's tensors are cut out of it once, not every step.

    Args:
        layout: where they lie in the vector.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._of: tuple[Tensor, Tensor] | None = None
        self._weights: Weights = ()
        self._parameters: list[Tensor] = []

    def at(self, point: Tensor, buffers: Tensor) -> Weights:
        """The tensors of the parameters ``[parameter_count]`` and of the buffers, which share their memory."""
        if self._of is None or self._of[0] is not point or self._of[1] is not buffers:
            # .data rather than detach(): parameters and buffers may be halves of one vector, and the running
            # statistics, which the forward pass changes in place, must not invalidate the parameters' views.
            self._weights = self._layout.weights(point.data, buffers)
            self._parameters = [self._weights[entry.block][entry.name] for entry in self._layout.parameters]
            for tensor in self._parameters:
                tensor.requires_grad_()
            self._of = point, buffers
        return self._weights

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient ``[parameter_count]`` of a loss by the parameters :meth:`at` the last point; a fresh vector.

        A loss that does not depend on the parameters has gradient zero.
        """
        if loss.requires_grad:
            pieces = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        else:
            pieces = tuple(torch.zeros_like(tensor) for tensor in self._parameters)
        return torch.cat([entry.flat(piece) for entry, piece in zip(self._layout.parameters, pieces, strict=True)])


def differentiated(  # noqa: PLR0917  (a loss is made of this many things)
    objective: Objective,
    leaves: Leaves,
    weights: Weights,
    batch: Batch,
    context: Context,
    precision: Precision,
    entering: Callable[[Phase], None] = _unobserved,
) -> tuple[Tensor, Loss]:
    """The gradient ``[parameter_count]`` of a loss, and the loss, detached; arguments are those of :func:`local_step`.

    ``weights`` are what ``leaves`` are at.
    """
    with computing(precision, batch.labels.device):
        loss = objective.loss(weights, batch, context)
    entering("backward")
    return leaves.gradient(loss.total), Loss(loss.total.detach(), loss.cross_entropy.detach())


Differentiate = Callable[[Objective, Leaves, Weights, Batch, Context, Precision], tuple[Tensor, Loss]]
"""What stands in for :func:`differentiated`."""


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
    leaves: Leaves | None = None,
    precision: Precision = "float32",
    entering: Callable[[Phase], None] = _unobserved,
    differentiate: Differentiate | None = None,
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
        leaves: of the job's earlier steps; ``None``: new ones.
        precision: of the loss's products.
        entering: told each phase as it begins; the cost model listens to it.
        differentiate: works out gradient and loss instead of :func:`differentiated`, to the same bits.

    Returns:
        The parameters after the step ``[parameter_count]``, and the loss at the gradient's point, detached.
    """
    entering("forward")
    leaves = Leaves(context.model.layout) if leaves is None else leaves
    weights = leaves.at(rule.point(parameters, memory, lr), buffers)
    if differentiate is None:
        gradient, loss = differentiated(objective, leaves, weights, batch, context, precision, entering)
    else:
        gradient, loss = differentiate(objective, leaves, weights, batch, context, precision)
    entering("update")
    return rule.update(parameters, gradient, memory, options, lr), loss
