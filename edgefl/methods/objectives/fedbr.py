"""FedBR: FedMLB's regularisation by the blocks that were received this round."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.methods.objectives.hybrid_paths import path_loss
from edgefl.methods.objectives.requirements import Need
from edgefl.models.layout import Weights
from edgefl.models.mode import using


class FedBR(Objective):
    """Block-wise regularisation and distillation (Tan et al. 2023, Eqs. 15-18).

    Path j (j = 1 … m) is local blocks 1 … M-j, then received blocks M-j+1 … M, with m = min(α, M-1): a client that
    received the whole model (α = M) trains all M-1 hybrid paths, which is FedMLB when its first block is current. The
    local prefix is computed once for all paths. Only blocks M-α+1 … M of ``received`` are read.
    """

    needs: ClassVar[tuple[Need, ...]] = ("classes", "blocks")
    frozen: ClassVar[frozenset[str]] = frozenset({"received"})

    lambda_1: float = Field(default=1.0, ge=0, description="weight λ1 of the hybrid paths' cross-entropy")
    lambda_2: float = Field(default=1.0, ge=0, description="weight λ2 of the divergence from the hybrid paths")
    temperature: float = Field(default=1.0, gt=0, description="temperature δ of the divergence")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        model, received = context.model, context.frozen["received"]
        paths = min(context.alpha, model.depth - 1)
        taps = model.taps(local, batch.inputs)
        with using(track=False):
            hybrids = [
                model.apply_blocks(received, taps[model.depth - j - 1], start=model.depth - j)
                for j in range(1, paths + 1)
            ]
        return path_loss(
            taps[-1],
            hybrids,
            batch.labels,
            lambda_1=self.lambda_1,
            lambda_2=self.lambda_2,
            temperature=self.temperature,
            divisor=max(1, paths),
        )
