"""The same number of blocks for every client in every round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from edgefl.errors import UserError
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS, BlockForecast, BlockScheduler, BlockSchedulerSpec


@dataclass(frozen=True)
class ConstantScheduler(BlockScheduler):
    """α = ``alpha`` for every client."""

    alpha: int

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast | None = None) -> dict[int, int]:
        return dict.fromkeys(cohort, self.alpha)


@BLOCK_SCHEDULERS.register("fixed")
class Fixed(BlockSchedulerSpec):
    """The same α for every client."""

    alpha: int = Field(ge=1, description="how many of the last blocks are sent, 1 … M")

    def start(self, seed: int, blocks: int) -> ConstantScheduler:
        if self.alpha > blocks:
            raise UserError(f"alpha is {self.alpha}, but the model has only {blocks} blocks", field="alpha")
        return ConstantScheduler(self.alpha)
