"""FedADC+: FedADC with self-confidence distillation (Ozfatura et al., Sec. III, Eqs. 7-9); all else is FedADC's."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedadc import FedAdcPayload, FedAdcRule, FedAdcServer
from edgefl.methods.kd import taught_by
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


def self_confident_target(teacher: Tensor, labels: Tensor, label_counts: Tensor) -> Tensor:
    """p̂ ``[batch, classes]``: p̂_i = (1-ρ_i) p̃_i for i ≠ y, and the rest of the mass on the label y (Eqs. 8-9).

    ρ_i = γ_i / max γ is the client's confidence in class i from its label frequencies (``label_counts`` ``[classes]``);
    p̃ are the teacher's probabilities ``[batch, classes]``.
    """
    confidence = label_counts.to(teacher.dtype) / label_counts.max().clamp(min=1)
    classes = torch.arange(teacher.shape[-1], device=labels.device)
    truth = (labels[:, None] == classes).to(teacher.dtype)
    others = (1 - confidence) * teacher * (1 - truth)
    return others + truth * (1 - others.sum(dim=-1, keepdim=True))


class SelfConfidence(Objective):
    """(1-λ) CE + λ T² KL(p̂ ‖ softmax(z/T)) with p̂ constant (Ozfatura et al., Sec. III, Eqs. 7-9).

    The paper does not state which model computes p̃; it is the received one, or the client's own (``teacher: local``).
    """

    needs = frozenset({"classes"})
    frozen = frozenset({"received"})
    client = frozenset({"label_counts"})

    lam: float = Field(default=0.35, ge=0, le=1, description="share λ of the distillation")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the distillation")
    teacher: Literal["received", "local"] = Field("received", description="the received model, or the client's own")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        teacher = logits.detach() if self.teacher == "local" else taught_by(context.frozen["received"], batch, context)
        taught = F.softmax(teacher / self.temperature, dim=-1)
        target = self_confident_target(taught, batch.labels, context.client["label_counts"])
        log_student = F.log_softmax(logits / self.temperature, dim=-1)
        divergence = (torch.xlogy(target, target) - target * log_student).sum(dim=-1).mean()
        total = (1 - self.lam) * cross_entropy + self.lam * self.temperature**2 * divergence
        return Loss(total, cross_entropy)


METHODS["fedadc+"] = Recipe(
    summary="FedADC with distillation from the received model for classes of which a client has few images",
    paper="Ozfatura et al. (FedADC), Sec. III, Eqs. 7-9",
    objective=SelfConfidence,
    rule=FedAdcRule,
    server=FedAdcServer(),
    payload=FedAdcPayload,
    weighting="uniform",
)
