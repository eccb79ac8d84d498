"""The base class of local rules: a rule computes new parameters from a gradient, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from edgefl.component import Component
from edgefl.methods.client_state import ClientState
from edgefl.methods.local_options import LocalOptions


class LocalRule(Component):
    """The use of the gradient in a local step; its fields are the options in addition to :class:`LocalOptions`.

    All vectors are flat, ``[..., parameter_count]``; a leading dimension contains several clients, so a rule must
    reduce over the last dimension only. ``memory`` is the rule's local optimizer state, created by :meth:`begin`.
    """

    vectors: ClassVar[frozenset[str]] = frozenset()
    """Names of the server or client-state vectors it reads, e.g. ``momentum`` for FedADC."""

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
