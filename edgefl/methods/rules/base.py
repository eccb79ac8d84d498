"""The base class of local rules: a rule computes new parameters from a gradient, as algebra on flat vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from edgefl.component import Component
from edgefl.methods.client_state import ClientState


class LocalOptions(Component):
    """The options of a client's local training: length, batches, and plain SGD (``training.local``)."""

    epochs: int | None = Field(
        default=None, ge=1, le=1_000_000, description="passes over the client's data; 1 if steps is not set"
    )
    steps: int | None = Field(
        default=None, ge=1, le=1_000_000_000, description="local steps instead of epochs (batches wrap around)"
    )
    batch: int = Field(default=32, ge=1, le=1_000_000_000, description="images in a minibatch")
    lr: float = Field(default=0.1, gt=0, description="learning rate η_0")
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="η_t = η_0 · lr_decay^t, per round")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="heavy-ball momentum, re-created every round")
    nesterov: bool = Field(default=False, description="Nesterov momentum")
    weight_decay: float = Field(default=0.0, ge=0, description="L2 penalty, added to the gradient after clipping")
    clip_norm: float | None = Field(default=None, gt=0, description="maximum global L2 norm of the gradient")
    drop_last: bool = Field(default=False, description="drop an incomplete last batch (FedAlign)")

    def lr_at(self, round: int) -> float:
        """η_t, the learning rate of a round, from 0.

        >>> LocalOptions(lr=0.5, lr_decay=0.5).lr_at(2)
        0.125
        """
        return self.lr * self.lr_decay**round

    def steps_for(self, samples: int) -> int:
        """H_k, the local steps of a client with ``samples`` images.

        >>> LocalOptions(epochs=2, batch=50).steps_for(120), LocalOptions(steps=7).steps_for(120)
        (6, 7)
        """
        if self.steps is not None:
            return self.steps
        return (self.epochs or 1) * self.steps_of_an_epoch(samples)

    def steps_of_an_epoch(self, samples: int) -> int:
        """Local steps of one pass over ``samples`` images, even if ``steps`` is set instead of ``epochs``."""
        whole, rest = divmod(samples, self.batch)
        return whole + (1 if rest and not (self.drop_last and whole) else 0)


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
