"""FedDyn's penalty, on top of any loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, SerializeAsAny
from torch import Tensor

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.methods.objectives.cross_entropy import CrossEntropy
from edgefl.methods.objectives.fedprox import parameter_vector
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights


class FedDyn(Objective):
    """f(θ) - ⟨λ_k, θ⟩ + (α/2)‖θ - θ_t‖² with another loss f (Acar et al. 2021, Eq. 1).

    The client keeps h_k, the sum of its past deltas, as the vector ``drift``; λ_k = -α h_k. Both terms are part of the
    loss, so that clipping sees them. With ``scale_alpha`` the client's α is α n/(N n_k), n images on N clients in all:
    the loss of a client with few images has less weight in the mean, so its proximal term is stronger.
    """

    base: SerializeAsAny[Objective] = Field(default_factory=CrossEntropy, description="the loss f")
    alpha: float = Field(default=0.1, gt=0, description="weight α of the dynamic regulariser")
    scale_alpha: bool = Field(default=False, description="divide α by n_k N/n")

    @property
    def frozen(self) -> frozenset[str]:  # type: ignore[override]
        """The frozen copies of the base loss."""
        return self.base.frozen

    @property
    def vectors(self) -> frozenset[str]:  # type: ignore[override]
        """The vectors of the base loss and of the penalty."""
        return self.base.vectors | {"received", "drift"}

    @property
    def client(self) -> frozenset[str]:  # type: ignore[override]
        """The facts of the base loss, and the client's size if α depends on it."""
        return self.base.client | ({"relative_size"} if self.scale_alpha else frozenset())

    @property
    def side_by_side(self) -> bool:  # type: ignore[override]
        """As for the base loss."""
        return self.base.side_by_side

    def adapt(self, model: BlockModel) -> BlockModel:
        """See :class:`Objective`."""
        return self.base.adapt(model)

    def evaluation_mode(self, model: BlockModel) -> dict[str, Any]:
        """See :class:`Objective`."""
        return self.base.evaluation_mode(model)

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        """See :class:`Objective`."""
        return self.base.draw(generator, batch)

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        loss = self.base.loss(local, batch, context)
        parameters = parameter_vector(local, context)
        away = parameters - context.vectors["received"]
        alpha = self.alpha / context.client["relative_size"] if self.scale_alpha else self.alpha
        penalty = alpha * ((context.vectors["drift"] * parameters).sum() + 0.5 * away.square().sum())
        return Loss(loss.total + penalty, loss.cross_entropy)
