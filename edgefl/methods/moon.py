"""MOON: features near the received model's and far from the client's previous ones (Li et al. 2021, Eqs. 3-4)."""

import copy
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from edgefl.errors import UserError
from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier, ending_in
from edgefl.models.layout import Weights
from edgefl.models.mode import using
from edgefl.models.slimmable import Linear


class Moon(Objective):
    """CE + μ · (-log softmax([cos(z, z_received), cos(z, z_previous)] / T)_1), batch mean (Li et al. 2021, Eqs. 3-4).

    z is the output of a two-layer projection head before the classifier (:meth:`adapt`). Both other models are frozen,
    in evaluation mode. For a client's first participation, the previous model is the received one: both similarities
    are then equal, so the term has no gradient and no effect.
    """

    needs = frozenset({"features"})
    frozen = frozenset({"received", "previous"})

    mu: float = Field(default=1.0, ge=0, description="weight μ of the contrastive term (5 for CIFAR-10 in the paper)")
    temperature: float = Field(default=0.5, gt=0, description="temperature T of the similarities")
    projection: int = Field(default=256, ge=1, description="size of the projection z")
    reads: Literal["features", "maps"] = Field(
        "features", description="the head reads the last layer's features, or channels' means in the last feature maps"
    )

    def adapt(self, model: BlockModel) -> BlockModel:
        """The model with a projection head (linear d → d, ReLU, linear d → ``projection``) before its last layer.

        The layers before it in the last block, and the head, become the second-last block; the classifier reads the
        projection. d is the number of input features of the model's own last layer. With ``reads: maps`` the blocks
        after the last feature maps are removed, and d is the maps' number of channels (FedADC, for its plain CNN).
        """
        super().adapt(model)
        *names, last = model.blocks

        def head(features: int) -> nn.Module:
            reading = Linear(features, features)
            return nn.Sequential(reading, nn.ReLU(), Linear(features, self.projection, slim_outputs=False))

        if self.reads == "maps":
            # Below the last block: its output are the logits.
            maps = [place for place, shape in enumerate(model.tap_shapes[:-1]) if len(shape) == 3]
            if not maps:
                raise UserError("moon with reads: maps needs a block that returns feature maps; this model has none")
            names = names[: maps[-1] + 1]
        blocks: dict[str, nn.Module] = copy.deepcopy({name: model.blocks[name] for name in names})
        if self.reads == "maps":
            blocks["projection"] = Classifier(head(model.tap_shapes[maps[-1]][0]), pool=True)
        else:
            try:
                blocks["projection"] = ending_in(model.blocks[last], head)
            except TypeError as error:
                found = f"the model's {error}"
                raise UserError(f"moon inserts a projection head before a linear last layer; {found}") from None
        blocks[last] = Classifier(Linear(self.projection, model.classes, slim_outputs=False), pool=False)
        return model.with_blocks(blocks, new=("projection", last))

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        model = context.model
        if "projection" not in model.blocks:
            raise ValueError("MOON trains the model that its adapt() returns, which has a projection head")

        def projected(name: str) -> Tensor:
            return model.apply_blocks(context.frozen[name], batch.inputs, stop=model.depth - 1)

        z = model.apply_blocks(local, batch.inputs, stop=model.depth - 1)
        logits = model.apply_blocks(local, z, start=model.depth - 1)
        cross_entropy = context.loss(logits, batch.labels)
        with torch.no_grad(), using(training=False, track=False):
            wanted, unwanted = projected("received"), projected("previous")
            # One product with the difference, which is exactly zero if both models are the same.
            apart = F.normalize(unwanted, dim=-1) - F.normalize(wanted, dim=-1)
        gap = (F.normalize(z, dim=-1) * apart).sum(dim=-1)
        # -log(e^a / (e^a + e^b)) = log(1 + e^(b - a))
        contrast = F.softplus(gap / self.temperature).mean()
        return Loss(cross_entropy + self.mu * contrast, cross_entropy)


METHODS["moon"] = Recipe(
    summary="features close to the received model's and far from the client's previous ones",
    paper="Li et al. 2021 (MOON), Eqs. 3-4",
    objective=Moon,
    server=Mean(),
    state=ClientState(),
)
