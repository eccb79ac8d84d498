"""FedAvg+KD: distillation from the received model (Hinton et al. 2015; baseline of Kim et al. 2022)."""

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.distillation import kl_divergence
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights
from edgefl.models.mode import using


def taught_by(teacher: Weights, batch: Batch, context: Context) -> Tensor:
    """The logits of a frozen model on the batch, in training mode, without gradient or tracking statistics."""
    with torch.no_grad(), using(track=False):
        return context.model.apply_blocks(teacher, batch.inputs)


class KnowledgeDistillation(Objective):
    """(1-γ) CE + γ KL(softmax(z_received/T) ‖ softmax(z/T)), the baseline FedAvg+KD of Kim et al. 2022."""

    needs = frozenset({"logits"})
    frozen = frozenset({"received"})

    gamma: float = Field(default=0.2, ge=0, le=1, description="share γ of the distillation")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the distillation")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        teacher = taught_by(context.frozen["received"], batch, context)
        distillation = kl_divergence(teacher, logits, self.temperature, context.mean(batch.labels))
        return Loss((1 - self.gamma) * cross_entropy + self.gamma * distillation, cross_entropy)


METHODS["kd"] = Recipe(
    summary="FedAvg with distillation from the received model",
    paper="Hinton et al. 2015; baseline of Kim et al. 2022",
    objective=KnowledgeDistillation,
    server=Mean(),
)
