"""FjORD: each client trains nested widths, up to that which its device allows (Horvath et al. 2021, Sec. 3, Alg. 1)."""

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.distillation import kl_divergence
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective, Variant
from edgefl.methods.parts.submodels import SubModel, Width
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import using


class NestedWidth(Width):
    """:class:`Width`, whose networks know the narrower levels within them, for losses that run several widths."""

    def part(self, whole: BlockModel, level: int) -> SubModel:
        widest, *others = (self.cut(whole, share) for share in self.levels[level:])
        widest.model.nested = tuple(each.within(widest) for each in others)
        return SubModel(widest.model, lambda _: widest.places())


class FjORD(Objective):
    """The loss of a width p, drawn uniformly from the client's widths in each step (Horvath et al. 2021, Sec. 3).

    With ``distill``, the client's widest network p_max is trained too and teaches the narrower one: CE(z_max, y) +
    (1-α) CE(z_p, y) + α T² KL(softmax(z_max / T) ‖ softmax(z_p / T)), where the teacher is a constant; CE(z_max, y)
    alone where the draw is p_max. Without it, the loss is CE(z_p, y).

    The paper's text was not at hand: its weights of the two losses, one update for both, the factor T², and its α and T
    could not be compared with it. Batch norm uses the statistics of the batch in every width while training; only the
    widest network updates the running statistics, which are averaged like all other numbers.
    """

    needs = frozenset({"classes"})
    side_by_side = False

    distill: bool = Field(default=True, description="the client's widest network teaches the drawn one")
    alpha: float = Field(default=0.5, ge=0, le=1, description="weight α of the teacher in a narrower network's loss")
    temperature: float = Field(default=1.0, gt=0, description="temperature T of the predictions that are compared")

    def variants(self, model: BlockModel) -> Sequence[Variant]:
        count = len(model.nested) + 1
        return [Variant(1 / count, {"width": torch.tensor((place + 0.5) / count)}) for place in range(count)]

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        return {"width": torch.tensor(generator.random(), dtype=torch.float64)}

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        model = context.model
        place = int(float(context.draws["width"]) * (len(model.nested) + 1))  # 0 is the widest
        if not place or self.distill:
            widest = model.apply_blocks(local, batch.inputs)
            cross_entropy = context.loss(widest, batch.labels)
            if not place:
                return Loss(cross_entropy, cross_entropy)
        narrow = model.nested[place - 1]
        with using(track=False):
            logits = narrow.model.apply_blocks(narrow.weights(local), batch.inputs)
        if not self.distill:
            loss = context.loss(logits, batch.labels)
            return Loss(loss, loss)
        taught = kl_divergence(widest.detach(), logits, self.temperature) * self.temperature**2
        student = (1 - self.alpha) * context.loss(logits, batch.labels) + self.alpha * taught
        return Loss(cross_entropy + student, cross_entropy)


METHODS["fjord"] = Recipe(
    summary="each client trains nested widths of the model, up to the one that its device allows",
    paper="Horvath et al. 2021 (FjORD), Sec. 3 and Alg. 1",
    objective=FjORD,
    server=Mean(),
    submodels=NestedWidth,
)
