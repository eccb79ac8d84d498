"""Every block for every client: FedBR's loss with FedAvg's downlink."""

from __future__ import annotations

from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS, BlockSchedulerSpec
from edgefl.scheduling.blocks.fixed import ConstantScheduler


@BLOCK_SCHEDULERS.register("all")
class All(BlockSchedulerSpec):
    """α = M: the whole model."""

    def start(self, seed: int, blocks: int) -> ConstantScheduler:
        return ConstantScheduler(blocks)
