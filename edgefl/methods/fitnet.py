"""FedAvg+FitNet: the received model's features are hints for the local ones (Romero et al. 2015; Kim et al. 2022)."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights
from edgefl.models.mode import using


class FitNet(Objective):
    """CE + γ · mean over blocks 1 … M-1 of the mean squared difference of taps (Romero et al. 2015).

    The tap before the classifier is compared in the form that the classifier uses, pooled or flattened. None of the
    four papers states the layers, the weight or the form of its baseline.
    """

    needs = frozenset({"features", "blocks"})
    frozen = frozenset({"received"})

    gamma: float = Field(default=0.2, ge=0, description="weight γ of the hints")

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        model = context.model
        taps = model.taps(local, batch.inputs)
        cross_entropy = context.loss(taps[-1], batch.labels)
        hints: list[Tensor] = []
        value = batch.inputs
        with torch.no_grad(), using(track=False):
            for block in range(model.depth - 1):
                value = model.apply_blocks(context.frozen["received"], value, block, block + 1)
                hints.append(value)
        pairs = [*zip(taps[:-2], hints[:-1], strict=True), (model.features(taps[-2]), model.features(hints[-1]))]
        gap = torch.stack([F.mse_loss(tap, hint) for tap, hint in pairs]).mean()
        return Loss(cross_entropy + self.gamma * gap, cross_entropy)


METHODS["fitnet"] = Recipe(
    summary="FedAvg with the received model's features as hints",
    paper="Romero et al. 2015; baseline of Kim et al. 2022",
    objective=FitNet,
    server=Mean(),
)
