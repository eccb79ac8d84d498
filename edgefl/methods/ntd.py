"""FedLS-NTD: distillation from the received model over the classes that are not the label (Lee et al. 2022, Eq. 4)."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.kd import taught_by
from edgefl.methods.parts.distillation import kl_divergence
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


def not_true(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits without that of the label ``[batch, classes-1]``, in the same order.

    >>> not_true(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([1, 2]))
    tensor([[1., 3.],
            [4., 5.]])
    """
    places = torch.arange(logits.shape[-1] - 1, device=logits.device).expand(logits.shape[0], -1)
    return logits.gather(1, places + (places >= labels[:, None]))


class NotTrueDistillation(Objective):
    """Distillation without the label's class (Lee et al. 2022), ``convex`` as in FedMLB's code, or ``additive``."""

    needs = frozenset({"classes"})
    frozen = frozenset({"received"})

    form: Literal["convex", "additive"] = Field("convex", description="(1-β) CE + β NTD, or CE + β T² NTD (authors')")
    beta: float = Field(default=0.3, ge=0, description="weight β of the distillation (the authors' own: 1, additive)")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the distillation")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        teacher = taught_by(context.frozen["received"], batch, context)
        distillation = kl_divergence(not_true(teacher, batch.labels), not_true(logits, batch.labels), self.temperature)
        if self.form == "convex":
            return Loss((1 - self.beta) * cross_entropy + self.beta * distillation, cross_entropy)
        return Loss(cross_entropy + self.beta * self.temperature**2 * distillation, cross_entropy)


METHODS["ntd"] = Recipe(
    summary="FedAvg with distillation over the classes that are not the label",
    paper="Lee et al. 2022 (FedNTD), Eq. 4",
    objective=NotTrueDistillation,
    server=Mean(),
)
