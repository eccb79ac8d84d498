"""Mixup: FedAvg on convex combinations of pairs of images (Zhang et al. 2018)."""

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


class Mixup(Objective):
    """λ CE(y) + (1-λ) CE(y') on λ x + (1-λ) x', one λ ~ Beta(a, a) a batch, as in FedAlign's authors' code."""

    needs = frozenset({"images"})

    mixing: float = Field(default=0.1, gt=0, description="both parameters a of the beta distribution of λ")

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        """λ (one number) and each image's partner ``[batch]``."""
        share = torch.tensor(generator.beta(self.mixing, self.mixing), dtype=torch.float32)
        return {"share": share, "partner": torch.from_numpy(generator.permutation(batch))}

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        share, partner = context.draws["share"], context.draws["partner"]
        mixed = share * batch.inputs + (1 - share) * batch.inputs[partner]
        logits = context.model.apply_blocks(local, mixed)
        cross_entropy = share * context.loss(logits, batch.labels)
        cross_entropy = cross_entropy + (1 - share) * context.loss(logits, batch.labels[partner])
        return Loss(cross_entropy, cross_entropy)


METHODS["mixup"] = Recipe(
    summary="FedAvg on convex combinations of images",
    paper="Zhang et al. 2018; baseline of Mendieta et al. 2022",
    objective=Mixup,
    server=Mean(),
)
