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
