"""Cross-entropy of the local model: the loss of FedAvg and of methods that change only the rule or the server."""

from __future__ import annotations

import torch.nn.functional as F

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.models.layout import Weights


class CrossEntropy(Objective):
    """Mean cross-entropy of the batch (McMahan et al. 2017)."""

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        cross_entropy = F.cross_entropy(context.model.apply_blocks(local, batch.inputs), batch.labels)
        return Loss(cross_entropy, cross_entropy)
