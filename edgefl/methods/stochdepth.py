"""Stochastic Depth: FedAvg with residual blocks dropped at random during training (Huang et al. 2016)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective, Variant
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

    needs = frozenset({"residual blocks"})

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

    def variants(self, model: BlockModel) -> Sequence[Variant]:
        """A device skips dropped blocks: here those whose index has a certain binary digit, one digit in each variant.

        Block l is dropped with a probability proportional to l, the sum of the shares of its digits.
        """
        blocks = model.residual_count
        digits = [1 << place for place in range((blocks - 1).bit_length())]
        one = (1 - self.survival) / max(1, blocks - 1)
        if one * sum(digits) > 1:  # a low survival: a variant for each number of last blocks that are dropped
            cuts = [(self.survival, blocks), *((one, first) for first in range(1, blocks))]
            return [Variant(each, {"dropped": torch.arange(blocks) >= first}) for each, first in cuts]
        return [
            Variant(share, {"dropped": torch.tensor([bool(index & digit) for index in range(blocks)])})
            for digit, share in [(0, 1 - one * sum(digits)), *((digit, one * digit) for digit in digits)]
        ]

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        if "dropped" in context.draws:
            with using(dropped=frozenset(context.draws["dropped"].nonzero().flatten().tolist())):
                cross_entropy = context.loss(context.model.apply_blocks(local, batch.inputs), batch.labels)
            return Loss(cross_entropy, cross_entropy)
        uniform = context.draws["uniform"][: context.model.residual_count]
        probabilities = torch.tensor(self.probabilities(context.model.residual_count), device=uniform.device)
        with using(keep=(uniform < probabilities).to(batch.inputs.dtype)):
            logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        return Loss(cross_entropy, cross_entropy)


METHODS["stochdepth"] = Recipe(
    summary="FedAvg with residual blocks dropped at random",
    paper="Huang et al. 2016; baseline of Mendieta et al. 2022",
    objective=StochasticDepth,
    server=Mean(),
)
