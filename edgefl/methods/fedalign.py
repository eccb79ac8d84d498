"""FedAlign: the last block and its narrower sub-block get the same Lipschitz constant (Mendieta et al. 2022, Eqs. 5-7).

1. The local step runs the network, and once more its block L at a quarter of the channels, on the same input.
2. Each of both gets the matrix of its input's and output's channels, and the matrix's spectral norm by power iteration.
3. The loss is cross-entropy + μ · (squared difference of the norms, scaled to the cross-entropy).

All else is FedAvg's.
"""

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from edgefl.errors import UserError
from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import using
from edgefl.models.slimmable import channels

POWER_ITERATIONS = 10
"""Number of power iterations, starting from the vector of ones, as in the authors' code."""

_TINY = 1e-30
"""Added under square roots, so that the gradient of an all-zero feature map is zero instead of undefined."""


def transmitting_matrix(before: Tensor, after: Tensor) -> Tensor:
    """X = a bᵀ/(H W) per sample, channels by channels ``[batch, a, b]`` (Mendieta et al. 2022, Eq. 6).

    ``before`` ``[batch, a, *, *]`` is a block's input, averaged to the size of its output ``after`` ``[batch, b, H,
    W]`` if that differs. In a text, ``[batch, length, a]`` and ``[batch, length, b]``, places are tokens, with padding.
    """
    if before.dim() == 3:
        return before.mT @ after / before.shape[1]
    if before.shape[-2:] != after.shape[-2:]:
        before = F.adaptive_avg_pool2d(before, (after.shape[-2], after.shape[-1]))
    rows, columns = before.flatten(2), after.flatten(2)
    return rows @ columns.mT / rows.shape[-1]


def spectral_norm(matrix: Tensor, iterations: int = POWER_ITERATIONS) -> Tensor:
    """The largest singular value of each matrix ``[..., a, b]`` by power iteration on X Xᵀ, differentiable ``[...]``.

    >>> spectral_norm(torch.diag(torch.tensor([3.0, 1.0, 0.5])))
    tensor(3.)
    """
    gram = matrix @ matrix.mT
    vector = torch.ones_like(gram[..., :1])
    length = torch.ones_like(gram[..., 0, 0])
    for _ in range(iterations):
        image = gram @ vector
        length = (image.square().sum(dim=(-2, -1)) + _TINY).sqrt()
        vector = image / length[..., None, None]
    return length.sqrt()


class FedAlign(Objective):
    """CE + μ · CE/L_lip · L_lip with L_lip = mean (σ_S - σ_F)² (Mendieta et al. 2022, Eqs. 5-7, as in their code).

    σ_F and σ_S are the spectral norms of block L's transmitting matrix at full width and of its sub-block, which runs
    the leading channels (share ``sub_width``) of the same weights on the leading channels of the same, detached input.
    The full-width side is a constant, so the term trains only the sub-block's weights. The factor CE/L_lip is also a
    constant: the term's value is always μ·CE, its gradient μ·CE·∇log L_lip. The authors compute the gradients of the
    two losses one after the other; their sum is the same because all shared values are detached.
    """

    needs = frozenset({"widths"})

    mu: float = Field(default=0.45, ge=0, description="weight μ of the term")
    sub_width: float = Field(default=0.25, gt=0, lt=1, description="share of channels of the sub-block")
    rescale: bool = Field(default=True, description="scale the term to μ·CE (the authors' code); off: Eq. 5 as printed")
    detach_full: bool = Field(default=True, description="the full-width side is a constant (the authors' code)")
    epsilon: ClassVar[float] = 1e-12
    """Added to L_lip in the denominator."""

    def adapt(self, model: BlockModel) -> BlockModel:
        super().adapt(model)
        if any(len(model.tap_shapes[index]) not in {2, 3} for index in (model.align_block - 1, model.align_block)):
            raise UserError("fedalign compares a block's channels at the places of images or texts, and this has none")
        return model

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        model = context.model
        block = model.align_block
        taps = model.taps(local, batch.inputs)
        before, after = taps[block - 1], taps[block]
        cross_entropy = context.loss(taps[-1], batch.labels)
        axis = 1 if before.dim() == 4 else 2
        kept = channels(before.shape[axis], self.sub_width)
        narrow = before.detach().narrow(axis, 0, kept)
        with using(width=self.sub_width, track=False):
            sub = model.apply_blocks(local, narrow, start=block, stop=block + 1)
        if self.detach_full:
            before, after = before.detach(), after.detach()
        full_norm = spectral_norm(transmitting_matrix(before, after))
        gap = F.mse_loss(spectral_norm(transmitting_matrix(narrow, sub)), full_norm)
        scale = cross_entropy.detach() / (gap.detach() + self.epsilon) if self.rescale else 1.0
        return Loss(cross_entropy + self.mu * scale * gap, cross_entropy)


METHODS["fedalign"] = Recipe(
    summary="aligns the Lipschitz constants of the last block and its narrower sub-block",
    paper="Mendieta et al. 2022 (FedAlign), Eqs. 5-7",
    objective=FedAlign,
    server=Mean(),
)
