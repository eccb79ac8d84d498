"""FedMLB: local blocks must also work with the received model's frozen blocks (Kim et al. 2022, Eqs. 5-8, Alg. 1).

Hybrid path m runs the local blocks 1 … m, then the received blocks m+1 … M. The loss is cross-entropy + λ1 · mean
cross-entropy of the paths + λ2 · mean divergence from the paths. All else is FedAvg's.
"""

from typing import Literal

from pydantic import Field

from edgefl.errors import UserError
from edgefl.methods.fedavg import Mean
from edgefl.methods.parts.distillation import HybridPaths
from edgefl.methods.parts.objective import Batch, Context, Loss
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel
from edgefl.models.layout import Weights
from edgefl.models.mode import using


class FedMLB(HybridPaths):
    """Multi-level branched regularisation (Kim et al. 2022, Eqs. 5-8, Alg. 1).

    The local prefix is computed once for all paths. With ``direction: global_to_local`` (the paper's ablation
    FedMLB_{G→L}) path m is received blocks 1 … m, then local blocks m+1 … M.
    """

    levels: tuple[int, ...] | None = Field(None, description="hybrid paths m to use, each from 1 to M-1; all when null")
    divisor: Literal["all", "levels"] = Field("all", description="of both sums: M-1 (the authors' code) or levels used")
    direction: Literal["local_to_global", "global_to_local"] = Field(
        default="local_to_global", description="local blocks first (the method) or received blocks first (ablation)"
    )

    def adapt(self, model: BlockModel) -> BlockModel:
        super().adapt(model)
        beyond = [level for level in self.levels or () if not 1 <= level < model.depth]
        if beyond:
            raise UserError(f"level {beyond[0]} is none of the model's levels 1 … {model.depth - 1}", field="levels")
        return model

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        model, received = context.model, context.frozen["received"]
        depth = model.depth
        levels = range(1, depth) if self.levels is None else self.levels
        taps = model.taps(local, batch.inputs)
        with using(track=False):
            if self.direction == "local_to_global":
                hybrids = [model.apply_blocks(received, taps[m - 1], start=m) for m in levels]
            else:
                # The frozen prefix has no gradient: its input is data and its weights are constants.
                prefix = model.taps(received, batch.inputs)
                hybrids = [model.apply_blocks(local, prefix[m - 1], start=m) for m in levels]
        divisor = depth - 1 if self.divisor == "all" else max(1, len(levels))
        return self.path_loss(context, taps[-1], hybrids, batch.labels, divisor)


METHODS["fedmlb"] = Recipe(
    summary="hybrid paths of local and frozen received blocks regularise every level",
    paper="Kim et al. 2022 (FedMLB), Eqs. 5-8 and Alg. 1",
    objective=FedMLB,
    server=Mean(),
)
