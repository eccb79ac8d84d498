"""GMBS, FedBR's greedy-based model block selection."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.randomness import generator
from edgefl.scheduling.blocks.base import (
    BLOCK_SCHEDULERS,
    BlockFeedback,
    BlockForecast,
    BlockScheduler,
    BlockSchedulerSpec,
)


class GmbsScheduler(BlockScheduler):
    """Greedy choice among m = 1 … M-1 by averaged feedback plus a bonus for choices that were rarely made.

    Eqs. 19-24 and Alg. 1 of Tan et al. 2023, with these interpretations: feedback counts when it arrives and for the
    number of blocks that was chosen; the loss is compared with the client's own previous participation, so the first
    one only counts the choice; nothing decays while a client does not take part; t is the round's number from 0; ties
    are broken at random. ``lam`` is λ of Eq. 23, ``bonus_scale`` the factor on the bonus in Eq. 24 (1 in the paper).
    """

    reads: ClassVar[frozenset[str]] = frozenset({"loss", "distance", "compute_seconds", "transfer_seconds"})

    def __init__(self, seed: int, arms: int, *, lam: float, bonus_scale: float) -> None:
        self._seed = seed
        self._lam = lam
        self._bonus_scale = bonus_scale
        self._remembered: defaultdict[int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(arms))
        self._played: defaultdict[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros(arms, dtype=np.int64))
        self._loss: dict[int, float] = {}

    def values(self, round: int, client: int) -> NDArray[np.float64]:
        """V_{k,m} = p_{k,m} + scale · √ln(t+1) / (n_{k,m} + 1) for m = 1 … M-1 (Eq. 24)."""
        bonus = self._bonus_scale * math.sqrt(math.log(round + 1)) / (self._played[client] + 1)
        return np.asarray(self._remembered[client] + bonus)

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        chosen = {}
        for client in cohort:
            values = self.values(round, client)
            best = np.flatnonzero(values == values.max())
            # Without a random draw the first of equal values would always win, and every client would begin with one
            # block.
            arm = int(best[0] if len(best) == 1 else generator(self._seed, "gmbs ties", round, client).choice(best))
            self._played[client][arm] += 1
            chosen[client] = arm + 1
        return chosen

    def observe(self, feedback: BlockFeedback) -> None:
        """Eqs. 19-21 and 23; an α outside 1 … M-1 (the whole model) is not an arm and only updates the loss."""
        slow = np.exp(_shares(feedback.compute_seconds) + _shares(feedback.transfer_seconds))
        weights = _shares(feedback.distance) / slow
        for client, alpha, weight, loss in zip(
            feedback.client.tolist(), feedback.alpha.tolist(), weights.tolist(), feedback.loss.tolist(), strict=True
        ):
            before = self._loss.get(client)
            self._loss[client] = loss
            remembered = self._remembered[client]
            if before is not None and 1 <= alpha <= len(remembered):
                reward = weight * (before - loss)
                remembered[alpha - 1] = self._lam * reward + (1 - self._lam) * remembered[alpha - 1]


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values divided by their sum; equal shares where they are all zero."""
    total = values.sum()
    return values / total if total > 0 else np.full(len(values), 1 / max(1, len(values)))


@BLOCK_SCHEDULERS.register("gmbs")
class Gmbs(BlockSchedulerSpec):
    """Options of :class:`GmbsScheduler`."""

    lam: float = Field(default=0.5, ge=0, le=1, description="weight λ of the newest feedback (Eq. 23)")
    bonus_scale: float = Field(default=1.0, ge=0, description="factor on the bonus for rarely played choices (Eq. 24)")

    def start(self, seed: int, blocks: int) -> GmbsScheduler:
        return GmbsScheduler(seed, max(1, blocks - 1), lam=self.lam, bonus_scale=self.bonus_scale)
