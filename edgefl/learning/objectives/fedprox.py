"""FedProx: a quadratic leash to the received model."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from edgefl.learning.models.layout import Weights
from edgefl.learning.objectives.base import Batch, Context, Loss, Objective


def squared_distance(local: Weights, context: Context) -> Tensor:
    """‖θ - θ_t‖² over the parameters (not the buffers), θ_t being the vector ``received``."""
    layout = context.model.layout
    received = layout.weights(context.vectors["received"])
    return torch.stack(
        [(local[e.block][e.name] - received[e.block][e.name]).square().sum() for e in layout.parameters]
    ).sum()


class FedProx(Objective):
    """CE + (μ/2)‖θ - θ_t‖² (Li et al. 2020, Eq. 2)."""

    vectors: ClassVar[frozenset[str]] = frozenset({"received"})

    mu: float = Field(default=0.01, ge=0, description="weight μ of the proximal term (μ/2)‖θ - θ_t‖²")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        cross_entropy = F.cross_entropy(context.model.apply_blocks(local, batch.inputs), batch.labels)
        return Loss(cross_entropy + 0.5 * self.mu * squared_distance(local, context), cross_entropy)
