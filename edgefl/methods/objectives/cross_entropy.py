"""Cross-entropy of the local model: the loss of FedAvg and of methods that change only the rule or the server."""

from __future__ import annotations

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.models.layout import Weights


class CrossEntropy(Objective):
    """The task's mean loss of the batch, cross-entropy for classification (McMahan et al. 2017)."""

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        cross_entropy = context.loss(context.model.apply_blocks(local, batch.inputs), batch.labels)
        return Loss(cross_entropy, cross_entropy)
