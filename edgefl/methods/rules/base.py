"""The base class of local rules: a rule computes new parameters from a gradient, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from edgefl.methods.client_state import ClientState
from edgefl.methods.local_options import LocalOptions
from edgefl.options import Component


class LocalRule(Component):
    """The use of the gradient in a local step; its fields are the options in addition to :class:`LocalOptions`.

    All vectors are flat, ``[..., parameter_count]``; a leading dimension contains several clients, so a rule must
    reduce over the last dimension only. ``memory`` is the rule's local optimizer state, created by :meth:`begin`.
    """

    vectors: ClassVar[frozenset[str]] = frozenset()
    """Names of the server or client-state vectors it reads, e.g. ``momentum`` for FedADC."""

    lr_on_device: ClassVar[bool] = False
    """Whether ``lr`` may also be a tensor ``[]`` on the device, so that recorded steps serve rounds of other rates.

    A subclass does not inherit it, because its own steps may need a number.
    """

    @property
    def takes_lr_on_device(self) -> bool:
        """Whether this class itself sets :attr:`lr_on_device`."""
        return bool(vars(type(self)).get("lr_on_device"))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names in the rule's ``memory`` that the client keeps after the job, for :meth:`client_state`."""
        return ()

    def client_state(self) -> ClientState | None:
        """The client state of this rule, in addition to the method's; none by default."""
        return None

    def accept(self, options: LocalOptions) -> None:
        """Raise an error for options that do not fit this rule; by default, all options fit.

        Raises:
            UserError: an option does not fit; the message states the reason.
        """

    @abstractmethod
    def begin(
        self, received: Tensor, vectors: Mapping[str, Tensor], options: LocalOptions, steps: int
    ) -> dict[str, Tensor]:
        """The ``memory`` before the first step of a job of ``steps`` local steps."""

    def point(self, parameters: Tensor, memory: dict[str, Tensor], lr: float) -> Tensor:
        """The point at which the gradient is computed; by default the parameters. A rule may look ahead."""
        return parameters

    @abstractmethod
    def update(
        self, parameters: Tensor, gradient: Tensor, memory: dict[str, Tensor], options: LocalOptions, lr: float
    ) -> Tensor:
        """The parameters after the step (in place or new); may change ``memory`` and overwrite the gradient.

        ``lr`` is η_t of the round.

        ``parameters`` are those before the step; ``gradient`` was computed at :meth:`point`.
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
