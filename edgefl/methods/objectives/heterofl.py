"""HeteroFL: the cross-entropy, optionally with the logits of classes that the client does not have set to zero."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.methods.objectives.requirements import Need, check_need
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights


class HeteroFL(Objective):
    """The task's loss of the part that the client trains (Diao et al. 2021, Sec. 3).

    With ``mask_absent``, logits of classes without a sample at the client are replaced by zero before the loss ("masked
    cross-entropy"), so that they get no gradient.
    """

    client: ClassVar[frozenset[str]] = frozenset({"label_counts"})

    mask_absent: bool = Field(
        default=False, description="set the logits of classes that the client does not have to zero while training"
    )

    def adapt(self, model: BlockModel) -> BlockModel:
        """See :class:`Objective`."""
        if self.mask_absent:
            needed: Need = "classes"
            check_need(needed, type(self).__name__, model)
        return super().adapt(model)

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        logits = context.model.apply_blocks(local, batch.inputs)
        if self.mask_absent:
            logits = logits * (context.client["label_counts"] > 0)
        loss = context.loss(logits, batch.labels)
        return Loss(loss, loss)
