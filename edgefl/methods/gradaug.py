"""GradAug: narrower sub-networks on smaller images learn from the full network (Yang et al. 2020)."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.distillation import kl_divergence
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective, Variant
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.layout import Weights
from edgefl.models.mode import using

WEIGHTS = {1: 2.0, 2: 1.75, 3: 1.5, 4: 1.25}
"""FedAlign's μ for each number of sub-networks."""


class GradAug(Objective):
    """CE + μ Σ_i KL(softmax(z), constant ‖ softmax(z_i)) over n sub-networks (Yang et al. 2020; Mendieta et al. 2022).

    The sub-networks' widths are w_b and n-1 draws from U(w_b, 1), largest first, each on the images resized to a drawn
    share of their side. A draw decides shapes, so clients cannot be batched.
    """

    needs = frozenset({"classes", "images", "widths"})
    side_by_side = False

    subnets: int = Field(default=2, ge=1, description="number n of sub-networks")
    min_width: float = Field(default=0.8, gt=0, lt=1, description="minimum width w_b")
    mu: float | None = Field(default=None, ge=0, description="weight μ; null: 2, 1.75, 1.5, 1.25 for n = 1, 2, 3, 4")
    sizes: tuple[float, ...] = Field((1.0, 0.875, 0.75, 0.625), min_length=1, description="shares of the image's side")

    def adapt(self, model: BlockModel) -> BlockModel:
        super().adapt(model)
        last = model.blocks[list(model.blocks)[-1]]
        pooled = isinstance(last, Classifier) and last.pool and all(len(shape) == 3 for shape in model.tap_shapes[:-1])
        if not pooled and set(self.sizes) != {1.0}:
            raise UserError(
                "gradaug runs smaller images, and this model takes one size only; use a model that averages over the "
                "image (a resnet), or sizes: [1.0]"
            )
        return model

    def variants(self, model: BlockModel) -> Sequence[Variant]:
        """Each sub-network runs every size equally often, and four or more equal parts of its range of widths.

        Widths and sizes are uncorrelated: for four sizes from large to small, parts 2, 4, 1 and 3 of the widths.
        """
        sizes = len(self.sizes)
        count = sizes * -(-4 // sizes)
        parts = [2 * place % count if count % 2 else (2 * place + 1) % (count + 1) for place in range(count)]
        found = []
        for place in range(count):
            steps = [(place + other) % count for other in range(self.subnets)]
            widths = [self.min_width + (1 - self.min_width) * (parts[step] + 0.5) / count for step in steps[1:]]
            drawn = [self.sizes[step * sizes // count] for step in [*steps[1:], steps[0]]]
            found.append(_variant(1 / count, [*widths, self.min_width], drawn))
        widest = [*[1.0] * (self.subnets - 1), self.min_width]
        return [*found, _variant(0, widest, [max(self.sizes)] * self.subnets)]

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        drawn = generator.uniform(self.min_width, 1, self.subnets - 1)
        widths = np.sort(np.append(drawn, self.min_width))[::-1]
        return {
            "width": torch.from_numpy(widths.copy()),
            "size": torch.from_numpy(generator.choice(np.array(self.sizes), self.subnets)),
        }

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        cross_entropy = context.loss(logits, batch.labels)
        total, mu = cross_entropy, WEIGHTS.get(self.subnets, 1.25) if self.mu is None else self.mu
        widths, sizes = context.draws["width"].tolist(), context.draws["size"].tolist()
        for width, size in zip(widths, sizes, strict=True):
            side = [max(1, round(size * length)) for length in batch.inputs.shape[-2:]]
            inputs = F.interpolate(batch.inputs, size=side, mode="bilinear", align_corners=True)
            with using(width=width, track=False):
                narrow = context.model.apply_blocks(local, inputs)
            total = total + mu * kl_divergence(logits.detach(), narrow)
        return Loss(total, cross_entropy)


def _variant(share: float, widths: list[float], sizes: list[float]) -> Variant:
    return Variant(share, {"width": torch.tensor(widths), "size": torch.tensor(sizes)})


METHODS["gradaug"] = Recipe(
    summary="FedAvg with sub-networks on smaller images that learn from the full one",
    paper="Yang et al. 2020; baseline of Mendieta et al. 2022",
    objective=GradAug,
    server=Mean(),
)
