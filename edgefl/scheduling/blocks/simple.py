"""Numbers of blocks that need no forecast: fixed, all, and random (the paper's FedBR-Ran)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.blocks.base import BLOCK_SCHEDULERS, BlockForecast, BlockScheduler, BlockSchedulerSpec


@dataclass(frozen=True)
class ConstantScheduler(BlockScheduler):
    """α = ``alpha`` for every client."""

    alpha: int

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        return dict.fromkeys(cohort, self.alpha)


@BLOCK_SCHEDULERS.register("fixed")
class Fixed(BlockSchedulerSpec):
    """The same α for every client."""

    alpha: int = Field(ge=1, description="how many of the last blocks are sent, 1 … M")

    def start(self, seed: int, blocks: int) -> ConstantScheduler:
        if self.alpha > blocks:
            raise UserError(f"alpha is {self.alpha}, but the model has only {blocks} blocks", field="alpha")
        return ConstantScheduler(self.alpha)


@BLOCK_SCHEDULERS.register("all")
class All(BlockSchedulerSpec):
    """α = M: the whole model."""

    def start(self, seed: int, blocks: int) -> ConstantScheduler:
        return ConstantScheduler(blocks)


@dataclass(frozen=True)
class RandomScheduler(BlockScheduler):
    """α uniform over 1 … ``arms``, independently for each client and round."""

    seed: int
    arms: int

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        return {
            client: int(generator(self.seed, "random blocks", round, client).integers(1, self.arms + 1))
            for client in cohort
        }


@BLOCK_SCHEDULERS.register("random")
class Random(BlockSchedulerSpec):
    """Uniform over 1 … M-1 (Tan et al. 2023, Sec. V, FedBR-Ran)."""

    def start(self, seed: int, blocks: int) -> RandomScheduler:
        return RandomScheduler(seed, max(1, blocks - 1))
