"""The base class of local rules: a rule computes new parameters from a gradient, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState, State
from edgefl.options import Component

if TYPE_CHECKING:
    from edgefl.methods.parts.local_options import LocalOptions


class LocalRule(Component):
    """The use of the gradient in a local step; its fields are the options in addition to :class:`LocalOptions`.

    All vectors are flat, ``[..., parameter_count]``; a leading dimension contains several clients, so a rule must
    reduce over the last dimension only. ``memory`` is the rule's local optimizer state, created by :meth:`begin`.
    """

    vectors: ClassVar[frozenset[str]] = frozenset()
    """Names of the server or client-state vectors it reads, e.g. ``momentum`` for FedADC."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it cannot do without; see :mod:`edgefl.methods.fits`."""

    lr_on_device: ClassVar[bool] = False
    """``lr`` may also be a tensor ``[]`` on the device, so that recorded steps serve rounds of other rates.

    A subclass does not inherit it, because its own steps may need a number.
    """

    @property
    def takes_lr_on_device(self) -> bool:
        """True if this class itself sets :attr:`lr_on_device`."""
        return bool(vars(type(self)).get("lr_on_device"))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names in the rule's ``memory`` that the client keeps after the job, for :meth:`client_state`."""
        return ()

    def client_state(self) -> ClientState | None:
        """The client state of this rule, in addition to the method's; none by default."""
        return None

    def first(self, parameters: Tensor) -> State:
        """The state of its :attr:`kept` names before a client's first job; zeros by default."""
        return {name: torch.zeros_like(parameters) for name in self.kept}

    def takes(self) -> dict[Need, str]:
        """What it takes from other parts, with the reasons."""
        return {}

    def accept(self, options: LocalOptions) -> None:
        """Check the local options; by default, all fit this rule."""

    @abstractmethod
    def begin(self, received: Tensor, vectors: State, options: LocalOptions, steps: int) -> State:
        """The ``memory`` before the first step of a job of ``steps`` local steps."""

    def point(self, parameters: Tensor, memory: dict[str, Tensor], lr: float) -> Tensor:
        """The point at which the gradient is computed; by default the parameters. A rule may look ahead."""
        return parameters

    @abstractmethod
    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float
    ) -> Tensor:
        """The parameters after the step (in place or new); may change ``memory`` and overwrite the gradient.

        ``gradient`` was computed at :meth:`point`; ``lr`` is η_t of the round.
        """


def stepped_(parameters: Tensor, step: Tensor, lr: float | Tensor) -> Tensor:
    """θ - η d, in place; η may be a tensor ``[]`` on the device.

    >>> import torch
    >>> stepped_(torch.ones(2), torch.ones(2), 0.5), stepped_(torch.ones(2), torch.ones(2), torch.tensor(0.5))
    (tensor([0.5000, 0.5000]), tensor([0.5000, 0.5000]))
    """
    if isinstance(lr, Tensor):
        return parameters.addcmul_(step, lr, value=-1)
    return parameters.sub_(step, alpha=lr)


def clipped(gradient: Tensor, options: LocalOptions) -> Tensor:
    """The gradient, clipped in place to an L2 norm of at most ``clip_norm`` (``torch.nn.utils.clip_grad_norm_``)."""
    if options.clip_norm is None:
        return gradient
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient.mul_((options.clip_norm / (norm + 1e-6)).clamp(max=1.0))


def direction(parameters: Tensor, gradient: Tensor, options: LocalOptions) -> Tensor:
    """The clipped gradient plus coupled weight decay, in place; weight decay is added after clipping."""
    gradient = clipped(gradient, options)
    if options.weight_decay:
        for place in options.decayed:
            gradient[..., place].add_(parameters[..., place], alpha=options.weight_decay)
    return gradient


class Sgd(LocalRule):
    """θ ← θ - η_t d with d the clipped gradient plus weight decay, with (Nesterov) momentum if set.

    The momentum starts at zero every round: clients keep no optimizer state between rounds.
    """

    lr_on_device: ClassVar[bool] = True

    def begin(self, received: Tensor, vectors: State, options: LocalOptions, steps: int) -> State:
        return {"velocity": torch.zeros_like(received)} if options.momentum else {}

    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float | Tensor
    ) -> Tensor:
        """One step of ``torch.optim.SGD``, in place, because newly allocated memory takes ten times as long."""
        step = direction(parameters, gradient, options)
        if options.momentum:
            velocity = memory["velocity"].mul_(options.momentum).add_(step)
            step = step.add(velocity, alpha=options.momentum) if options.nesterov else velocity
        return stepped_(parameters, step, lr)
