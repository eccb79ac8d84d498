"""FedRS: restricted logits for classes that are absent from a client's data."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.methods.objectives.requirements import Need
from edgefl.models.layout import Weights


class FedRS(Objective):
    """Cross-entropy with the logits of absent classes multiplied by ``absent_scale`` (Li and Zhan 2021).

    The whole logit is scaled, bias included; only during local training.
    """

    needs: ClassVar[tuple[Need, ...]] = ("classes",)
    client: ClassVar[frozenset[str]] = frozenset({"label_counts"})

    absent_scale: float = Field(default=0.5, ge=0, le=1, description="factor α on the logits of absent classes")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        logits = context.model.apply_blocks(local, batch.inputs)
        held = context.client["label_counts"] > 0
        restricted = torch.where(held, logits, self.absent_scale * logits)
        cross_entropy = context.loss(restricted, batch.labels)
        return Loss(cross_entropy, cross_entropy)
