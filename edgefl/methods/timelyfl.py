"""TimelyFL (Zhang et al. 2023, Alg. 1-3): by a common finish, fast clients train more epochs, slow ones last blocks."""

from typing import Literal

from pydantic import Field

from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.parts.common_finish import CommonFinish
from edgefl.methods.recipe import METHODS, Recipe


class TimelyFL(CrossEntropy):
    """The task's loss on the last blocks: the front is run forward only, neither trained nor sent back.

    Zhang et al., "TimelyFL: Heterogeneity-aware Asynchronous Federated Learning with Adaptive Partial Training" (CVPR
    2023), Alg. 1-3. With the common finish T_k (``CommonFinish``), a client trains the share α = min(T_k / (t_cmp +
    t_com), 1) of the model: ``linear`` gives it its last max(⌊α M⌋, 1) blocks. The paper speaks of layers; here they
    are blocks. It takes the time as proportional to α, but the download and the forward pass through the front remain,
    so a client with a small α may be late. ``foreseen`` gives the most blocks with which the prediction of the whole
    participation ends by T_k.

    The running statistics of the front stay as they were received. The paper's text was not at hand when this was
    written: k as half of the cohort, and whole epochs of the local options, are our reading.
    """

    needs = frozenset({"blocks"})
    trains_last = True
    # A stack of clients, or a recorded step, would need one frozen front for all.
    side_by_side = False

    blocks: Literal["linear", "foreseen"] = Field("linear", description="the share α, or as many blocks as end in time")

    @property
    def blocks_end_in_time(self) -> bool:
        return self.blocks == "foreseen"


METHODS["timelyfl"] = Recipe(
    summary="fast clients train more epochs and slow ones only the last blocks, to end by a common finish",
    paper="Zhang et al. 2023 (TimelyFL), Alg. 1-3",
    objective=TimelyFL,
    server=Mean(),
    common_finish=CommonFinish(share=0.5, unit="epochs", drop_late=True),
)
