"""Stochastic gradient descent as torch does it: clip, weight decay, momentum, step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.errors import UserError
from edgefl.learning.client_state import ClientState
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


class Velocity(ClientState):
    """The momentum buffer with which the client's last job ended."""

    vectors: ClassVar[tuple[str, ...]] = ("velocity",)

    def first(self, received: Tensor, parameter_count: int) -> dict[str, Tensor]:
        """Zero."""
        return {"velocity": received.new_zeros(parameter_count)}

    def after(
        self, vectors: Mapping[str, Tensor], received: Tensor, final: Tensor, lr: float, steps: int
    ) -> dict[str, Tensor]:
        """What the job left."""
        return {"velocity": vectors["velocity"]}


class Sgd(LocalRule):
    """θ ← θ - η_t d with d the clipped gradient plus weight decay, through (Nesterov) momentum if there is any.

    The momentum starts at zero every round: clients carry no optimiser state from round to round. With
    ``persist_momentum`` it goes on where the client's last job ended, as it does in FedAlign's code, where no optimiser
    is ever reset.
    """

    persist_momentum: bool = Field(
        default=False, description="momentum goes on where the client's last job ended, instead of starting at zero"
    )

    @property
    def vectors(self) -> frozenset[str]:  # type: ignore[override]
        """The client's last momentum, where it persists."""
        return frozenset({"velocity"}) if self.persist_momentum else frozenset()

    @property
    def kept(self) -> tuple[str, ...]:
        """The momentum, where it persists."""
        return ("velocity",) if self.persist_momentum else ()

    def client_state(self) -> ClientState | None:
        """The momentum, where it persists."""
        return Velocity() if self.persist_momentum else None

    def accept(self, options: LocalOptions) -> None:
        """Refuses to keep a momentum that there is not."""
        if self.persist_momentum and not options.momentum:
            raise UserError("there is no momentum to keep; set local.momentum as well", field="persist_momentum")

    def begin(
        self, received: Tensor, vectors: Mapping[str, Tensor], options: LocalOptions, steps: int
    ) -> dict[str, Tensor]:
        """The velocity, if there is momentum: zero, or the last job's."""
        if self.persist_momentum:
            return {"velocity": vectors["velocity"].clone()}
        return {"velocity": torch.zeros_like(received)} if options.momentum else {}

    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float
    ) -> Tensor:
        """One step of ``torch.optim.SGD``, all of it in place: fresh memory is cold and takes ten times as long."""
        step = direction(parameters, gradient, options)
        if options.momentum:
            velocity = memory["velocity"].mul_(options.momentum).add_(step)
            step = step.add(velocity, alpha=options.momentum) if options.nesterov else velocity
        return parameters.sub_(step, alpha=lr)
