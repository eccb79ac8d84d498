"""FedBR: only the last α blocks are sent, and they regularise the local blocks (Liu et al. 2023, Eqs. 15-24, Alg. 1).

1. In a full round each client receives the whole model, in others the last α blocks that the block scheduler (GMBS)
   chooses for it; its front blocks are those of its own last local model.
2. Hybrid path j runs the local blocks 1 … M-j, then the received blocks M-j+1 … M, for j = 1 … min(α, M-1).
3. The loss is cross-entropy + λ1 · mean cross-entropy of the paths + λ2 · mean divergence from the paths.
4. The client returns its whole local model; the server takes the mean.
"""

from typing import Literal

from pydantic import Field

from edgefl.methods.fedavg import Mean
from edgefl.methods.fits import Need
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.distillation import HybridPaths
from edgefl.methods.parts.objective import Batch, Context, Loss
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.layout import Weights
from edgefl.models.mode import using


class FedBR(HybridPaths):
    """Block-wise regularisation and distillation (Liu et al. 2023, Eqs. 15-18).

    A client that received the whole model (α = M) trains all M-1 hybrid paths, which is FedMLB when its first block is
    current. The local prefix is computed once for all paths. Only blocks M-α+1 … M of ``received`` are read.
    """

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        model, received = context.model, context.frozen["received"]
        paths = min(context.alpha, model.depth - 1)
        taps = model.taps(local, batch.inputs)
        with using(track=False):
            starts = [model.depth - j for j in range(1, paths + 1)]
            hybrids = [model.apply_blocks(received, taps[start - 1], start=start) for start in starts]
        return self.path_loss(context, taps[-1], hybrids, batch.labels, divisor=max(1, paths))


class BlocksPayload(Payload):
    """Some consecutive last blocks instead of the model (Liu et al. 2023, Sec. II-B).

    A full round is one with round % ``full_every`` = 0 (τ + 1 in the paper; rounds count from 0). In other rounds each
    client receives the α blocks chosen by the block scheduler. The local model consists of the client's own last blocks
    1 … M-α and the received tail (:meth:`Layout.splice` with first = M-α), so a client without a model is sent the
    whole model (``forced_full``). With ``first_send: none`` such a client is assumed to have the common initial model
    x⁰, at no charge: its job has no predecessor and α < M, and starts from x⁰'s front blocks.

    With ``full_to: all``, clients that do not take part in a full round are also sent the whole model ("to all
    clients every τ + 1 rounds", Sec. II-B). Their next partial round continues from its blocks.
    """

    full_every: int = Field(default=2, ge=1, description="the whole model is sent every this many rounds (τ + 1)")
    full_to: Literal["cohort", "all"] = Field("cohort", description="who gets the model in full rounds")
    first_send: Literal["full", "none"] = Field("full", description="new clients are sent the whole model, or have x⁰")
    block_bytes: Literal["actual", "uniform"] = Field("actual", description="those of its tensors, or the paper's S/M")
    max_stale: int | None = Field(None, ge=1, description="send all to a client whose last whole model is older")
    gmbs_on_full_rounds: bool = Field(False, description="count an arm in full rounds too (Alg. 1, literally)")

    def full(self, round: int) -> bool:
        """True if every client of the round is sent the whole model."""
        return round % self.full_every == 0

    def broadcasts(self, round: int) -> bool:
        return self.full_to == "all" and self.full(round)

    @property
    def sends_blocks(self) -> bool:
        if type(self).partial is not BlocksPayload.partial:
            return super().sends_blocks
        return self.gmbs_on_full_rounds or self.full_every > 1

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        """With ``full_to: all``, an encoded change would refer to blocks that were sent for the client's last job."""
        return frozenset({"rounds", "exact uplink"} if self.full_to == "all" else ())

    def partial(self, round: int) -> bool:
        return self.gmbs_on_full_rounds or not self.full(round)

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        whole = Part("model", sizes.model_bytes, round)
        blocks = sizes.blocks
        if self.full(round) or alpha is None or alpha >= blocks:
            return Downlink((whole,), blocks)
        empty_handed = held is None and self.first_send == "full"
        stale = self.max_stale is not None and round - (held or 0) > self.max_stale
        if empty_handed or stale:
            return Downlink((whole,), blocks, forced_full=True)
        bytes_per_block = (sizes if self.block_bytes == "actual" else sizes.uniform()).block_bytes
        parts = tuple(
            Part(f"block {index + 1}", bytes_per_block[index], round)
            for index in range(blocks - alpha, blocks)
            if bytes_per_block[index]
        )
        return Downlink(parts, alpha)


METHODS["fedbr"] = Recipe(
    summary="sends only the last blocks, as many as the scheduler chooses, and regularises with them",
    paper="Liu et al. 2023 (FedBR), Eqs. 15-24 and Alg. 1",
    objective=FedBR,
    server=Mean(),
    payload=BlocksPayload,
    # Blocks that are not sent are the client's own, from the end of its last participation.
    state=ClientState(),
    weighting="uniform",
    scheduler="gmbs",
)
