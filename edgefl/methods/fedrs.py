"""FedRS: smaller logits for classes that are absent from, or rare in, a client's data (Li and Zhan 2021)."""

from typing import Literal

import torch
from pydantic import Field

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights


class FedRS(Objective):
    """Cross-entropy with the logits of absent classes multiplied by ``absent_scale`` (Li and Zhan 2021).

    With ``form: share`` the logit of every class c is multiplied by α + (1-α) n_c / max n, as in the authors' code
    (lxcnju/FedRepo); their paper's text has only absent classes. The whole logit is scaled, in local training only.
    """

    needs = frozenset({"classes"})
    client = frozenset({"label_counts"})

    absent_scale: float = Field(default=0.5, ge=0, le=1, description="factor α on the logits of absent classes")
    form: Literal["absent", "share"] = Field("absent", description="scale absent classes only, or each by its share")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        counts = context.client["label_counts"]
        if self.form == "share":
            share = counts.to(logits.dtype) / counts.max().clamp(min=1)
            restricted = (self.absent_scale + (1 - self.absent_scale) * share) * logits
        else:
            restricted = torch.where(counts > 0, logits, self.absent_scale * logits)
        cross_entropy = context.loss(restricted, batch.labels)
        return Loss(cross_entropy, cross_entropy)


METHODS["fedrs"] = Recipe(
    summary="FedAvg with smaller logits for classes that a client lacks",
    paper="Li and Zhan 2021 (FedRS)",
    objective=FedRS,
    server=Mean(),
)
