"""DepthFL: each client trains the first blocks, with a classifier after each (Kim et al. 2023, Sec. 3 and Alg. 1)."""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.distillation import kl_divergence
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.submodels import SubModel, SubModels
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.exits import first_exits, has_exits, with_exits
from edgefl.models.layout import Weights
from edgefl.models.narrower import kept_count


class Depth(SubModels):
    """Level p trains the first ⌊p D⌋ of the model's D blocks, and the classifiers after each of them."""

    def part(self, whole: BlockModel, level: int) -> SubModel:
        layout, blocks = whole.layout, whole.depth // 2
        kept = kept_count(blocks, self.levels[level], "down")
        if kept == blocks:
            places = torch.arange(layout.size)
            return SubModel(whole, lambda _: places)
        part = first_exits(whole, kept)
        # A vector has the parameters block by block and then the buffers block by block.
        places = torch.cat(
            [torch.arange(part.layout.parameter_count), layout.parameter_count + torch.arange(part.layout.buffer_count)]
        )
        return SubModel(part, lambda _: places)


class DepthFL(Objective):
    """Σ_i CE(z_i, y) + λ_t T²/(d-1) Σ_i Σ_{j≠i} KL(softmax(z_j / T) ‖ softmax(z_i / T)) (Kim et al. 2023, Sec. 3).

    z_1 … z_d are the outputs of the client's d classifiers. The teachers z_j are constants. The weight λ_t =
    ``consistency`` · exp(-5 (1 - min(t/R, 1))²) grows over the first R rounds t, counted from 1. The server's model
    predicts with the mean of the outputs of all its classifiers.

    The paper's text was not at hand: the ramp and its R, constant teachers, T, the form of the internal classifiers and
    outputs (not probabilities) that are averaged could not be compared with it.
    """

    needs = frozenset({"classes", "features", "depths"})
    client = frozenset({"round"})

    consistency: float = Field(default=1.0, ge=0, description="largest weight λ of the divergence between classifiers")
    ramp: int = Field(default=300, ge=0, description="rounds R in which λ grows; 0: it is the largest from the start")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the predictions that are compared")
    grid: int = Field(4, ge=1, description="a classifier reads this many cells of a map along each side, at most")
    ensemble: bool = Field(True, description="evaluate the mean of all classifiers' outputs, or only the last")

    def adapt(self, model: BlockModel) -> BlockModel:
        """A model that has the classifiers, such as a client's part, is not changed."""
        return model if has_exits(model) else with_exits(super().adapt(model), self.grid)

    def evaluation_mode(self, model: BlockModel) -> dict[str, Any]:
        return {"ensemble": True} if self.ensemble else {}

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.exits(local, batch.inputs)
        losses = [context.loss(each, batch.labels) for each in logits]
        total = torch.stack(losses).sum()
        if len(logits) > 1 and self.consistency:
            total = total + self._weight(context.client["round"].to(total.dtype)) * self._divergence(logits)
        return Loss(total, losses[-1])

    def _weight(self, round: Tensor) -> Tensor | float:
        if not self.ramp:
            return self.consistency
        left = 1 - ((round + 1) / float(self.ramp)).clamp(max=1)  # PyTorch takes no whole number above 2^63
        return self.consistency * torch.exp(-5 * left**2)

    def _divergence(self, logits: list[Tensor]) -> Tensor:
        pairs = [
            kl_divergence(teacher.detach(), student, self.temperature)
            for i, student in enumerate(logits)
            for j, teacher in enumerate(logits)
            if j != i
        ]
        return torch.stack(pairs).sum() * (self.temperature**2 / (len(logits) - 1))


METHODS["depthfl"] = Recipe(
    summary="each client trains the first blocks, as many as its device allows, with a classifier after each",
    paper="Kim et al. 2023 (DepthFL), Sec. 3 and Alg. 1",
    objective=DepthFL,
    server=Mean(),
    submodels=Depth,
    weighting="uniform",
    defaults={"levels": (1.0, 0.75, 0.5, 0.25)},
)
