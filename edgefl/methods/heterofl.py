"""HeteroFL: each client trains the first channels of each layer, as many as its device allows (Diao et al. 2021).

1. The client of share p receives, trains and returns the first ⌈p C⌉ of the C channels of each hidden layer.
2. While it trains, the outputs of narrower layers are divided by p (the scaler).
3. The server averages each number over the clients that trained it; the others stay.
"""

from functools import partial
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from edgefl.methods.fedavg import Mean
from edgefl.methods.fits import Need
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.submodels import Width
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import mode
from edgefl.models.narrower import Cut


def scaled(_: nn.Module, __: Any, output: Tensor, *, share: float) -> Tensor:
    """A forward hook that divides a layer's output by the share p of channels while it trains."""
    return output / share if mode().training else output


class ScaledWidth(Width):
    """:class:`Width` with HeteroFL's scaler (Diao et al. 2021): in training, outputs of cut layers are divided by p."""

    scaler: bool = Field(default=True, description="divide the outputs of narrower layers by p while training")

    def cut(self, whole: BlockModel, share: float) -> Cut:
        cut = super().cut(whole, share)
        if self.scaler:
            for name in sorted(cut.outputs):
                cut.model.blocks.get_submodule(name).register_forward_hook(partial(scaled, share=share))
        return cut


class HeteroFL(Objective):
    """The task's loss of the part that the client trains (Diao et al. 2021, Sec. 3).

    With ``mask_absent``, logits of classes without a sample at the client are zero ("masked cross-entropy").
    """

    client = frozenset({"label_counts"})

    mask_absent: bool = Field(False, description="set the logits of absent classes to zero while training")

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        return frozenset({"classes"} if self.mask_absent else ())

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        logits = context.model.apply_blocks(local, batch.inputs)
        if self.mask_absent:
            logits = logits * (context.client["label_counts"] > 0)
        loss = context.loss(logits, batch.labels)
        return Loss(loss, loss)


METHODS["heterofl"] = Recipe(
    summary="each client trains the first channels of each layer, as many as its device allows",
    paper="Diao et al. 2021 (HeteroFL), Sec. 3 and Alg. 1",
    objective=HeteroFL,
    server=Mean(),
    submodels=ScaledWidth,
    weighting="uniform",
)
