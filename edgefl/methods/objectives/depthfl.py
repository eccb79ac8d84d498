"""DepthFL: the losses of all classifiers of the client's network, and each taught by the others."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.methods.objectives.divergence import kl_divergence
from edgefl.methods.objectives.requirements import Need
from edgefl.models.block_model import BlockModel
from edgefl.models.exits import has_exits, with_exits
from edgefl.models.layout import Weights


class DepthFL(Objective):
    """Σ_i CE(z_i, y) + λ_t T²/(d-1) Σ_i Σ_{j≠i} KL(softmax(z_j / T) ‖ softmax(z_i / T)) (Kim et al. 2023, Sec. 3).

    z_1 … z_d are the outputs of the client's d classifiers. The teachers z_j are constants. The weight λ_t =
    ``consistency`` · exp(-5 (1 - min(t/R, 1))²) grows over the first R rounds t, counted from 1. The server's model
    predicts with the mean of the outputs of all its classifiers.

    The paper's text was not at hand: the ramp and its R, constant teachers, T, the form of the internal classifiers and
    outputs (not probabilities) that are averaged could not be compared with it.
    """

    needs: ClassVar[tuple[Need, ...]] = ("classes", "features", "depths")
    client: ClassVar[frozenset[str]] = frozenset({"round"})

    consistency: float = Field(default=1.0, ge=0, description="largest weight λ of the divergence between classifiers")
    ramp: int = Field(default=300, ge=0, description="rounds R in which λ grows; 0: it is the largest from the start")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the predictions that are compared")
    grid: int = Field(
        default=4,
        ge=1,
        description="a further classifier reads the means of each map's cells, at most this many along each side; 1: "
        "the mean of the whole map",
    )
    ensemble: bool = Field(
        default=True, description="evaluate the mean of all classifiers' outputs; false: only the last classifier"
    )

    def adapt(self, model: BlockModel) -> BlockModel:
        """The model with a classifier after each block; one that has them, such as a client's part, is not changed."""
        return model if has_exits(model) else with_exits(super().adapt(model), self.grid)

    def evaluation_mode(self, model: BlockModel) -> dict[str, Any]:
        """With all classifiers, unless ``ensemble`` is false."""
        return {"ensemble": True} if self.ensemble else {}

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        logits = context.model.exits(local, batch.inputs)
        losses = [context.loss(each, batch.labels) for each in logits]
        total = torch.stack(losses).sum()
        if len(logits) > 1 and self.consistency:
            total = total + self._weight(context.client["round"].to(total.dtype)) * self._divergence(logits)
        return Loss(total, losses[-1])

    def _weight(self, round: Tensor) -> Tensor | float:
        """λ_t in a round, from 0."""
        if not self.ramp:
            return self.consistency
        left = 1 - ((round + 1) / float(self.ramp)).clamp(max=1)  # PyTorch takes no whole number above 2^63
        return self.consistency * torch.exp(-5 * left**2)

    def _divergence(self, logits: list[Tensor]) -> Tensor:
        """T²/(d-1) Σ_i Σ_{j≠i} KL(p_j ‖ p_i)."""
        pairs = [
            kl_divergence(teacher.detach(), student, self.temperature)
            for i, student in enumerate(logits)
            for j, teacher in enumerate(logits)
            if j != i
        ]
        return torch.stack(pairs).sum() * (self.temperature**2 / (len(logits) - 1))
