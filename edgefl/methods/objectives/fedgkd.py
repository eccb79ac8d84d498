"""FedGKD: distillation from the mean of the last global models."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from edgefl.methods.objectives.base import Batch, Context, Loss, Objective
from edgefl.methods.objectives.divergence import kl_divergence
from edgefl.methods.objectives.kd import taught_by
from edgefl.methods.objectives.requirements import Need
from edgefl.models.layout import Weights


class FedGKD(Objective):
    """CE + c · T² · KL(softmax(z_teacher/T) ‖ softmax(z/T)) (Yao et al. 2021).

    The teacher's parameters are the vector ``teacher``, the mean of the last global models; its buffers are those of
    the received model. The term is off while the vector ``teaching`` (one number) is zero: in the first round.
    """

    needs: ClassVar[tuple[Need, ...]] = ("classes",)
    frozen: ClassVar[frozenset[str]] = frozenset({"received"})
    vectors: ClassVar[frozenset[str]] = frozenset({"teacher", "teaching"})

    gamma: float = Field(default=0.1, ge=0, description="weight c of the distillation")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the distillation")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        """See :class:`Objective`."""
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        mean = context.model.layout.weights(context.vectors["teacher"])
        received = context.frozen["received"]
        teacher = tuple({**buffers, **parameters} for buffers, parameters in zip(received, mean, strict=True))
        distillation = kl_divergence(taught_by(teacher, batch, context), logits, self.temperature)
        weight = self.gamma * self.temperature**2 * context.vectors["teaching"].sum()
        return Loss(cross_entropy + weight * distillation, cross_entropy)
