"""Stochastic Depth: FedAvg with residual blocks dropped at random during training (Huang et al. 2016)."""

from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.fits import Need
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import using

MOST_BLOCKS = 256
"""Maximum number of residual blocks; a step's numbers are drawn without knowing the model."""


class StochasticDepth(Objective):
    """Cross-entropy with residual block l = 0 … L-1 kept with probability 1 - l/(L-1) · (1 - ρ) (Huang et al. 2016).

    One draw per block and batch. In evaluation, each block's residual is multiplied by its probability of being kept.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"residual blocks"})

    survival: float = Field(default=0.9, gt=0, le=1, description="probability ρ that the last residual block is kept")

    def probabilities(self, blocks: int) -> tuple[float, ...]:
        """Each block's probability of being kept.

        >>> StochasticDepth(survival=0.5).probabilities(3)
        (1.0, 0.75, 0.5)
        """
        return tuple(1 - index / max(1, blocks - 1) * (1 - self.survival) for index in range(blocks))

    def evaluation_mode(self, model: BlockModel) -> dict[str, Any]:
        return {"keep_probability": self.probabilities(model.residual_count)}

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        """The model uses one for each of its residual blocks."""
        return {"uniform": torch.from_numpy(generator.random(MOST_BLOCKS, dtype=np.float32))}

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        uniform = context.draws["uniform"][: context.model.residual_count]
        probabilities = torch.tensor(self.probabilities(context.model.residual_count), device=uniform.device)
        with using(keep=(uniform < probabilities).to(batch.inputs.dtype)):
            logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        return Loss(cross_entropy, cross_entropy)


METHODS.register("stochdepth")(
    Recipe(
        summary="FedAvg with residual blocks dropped at random",
        paper="Huang et al. 2016; baseline of Mendieta et al. 2022",
        objective=StochasticDepth,
        rule=Sgd,
        server=Mean(),
    )
)
