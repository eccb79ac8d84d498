"""Power-of-Choice: of some random candidates those with the highest losses."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectionFeedback, SelectorSpec
from edgefl.scheduling.selection.oort import round_up


class AskedLosses(SeededSelector["PowerOfChoice"]):
    """π_pow-d and π_cpow-d (Cho, Wang and Joshi, AISTATS 2022).

    A set of d candidates is drawn without replacement, a client k with the probability p_k, its share of all data. Each
    candidate evaluates the model that the round begins with, on all its training images or (cpow-d) on a random batch
    of them. The clients with the highest losses are picked; of equal ones those drawn first.

    Interpretation: clients that are not available are not drawn, and p_k is the share of the available clients' data.
    """

    reads = frozenset({"data_sizes", "local_losses"})

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        sizes = facts.data_sizes[available]
        wanted = min(len(available), max(cohort, round_up(self._spec.candidates * cohort)))
        draws = generator(self._seed, "selection", round)
        known = np.count_nonzero(sizes) >= wanted
        chances = sizes / sizes.sum() if known else None
        candidates = draws.choice(available, size=wanted, replace=False, p=chances)
        losses = self._losses(candidates, facts)
        return np.sort(candidates[np.argsort(-losses, kind="stable")[:cohort]])

    def _losses(self, candidates: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        """The loss of each candidate, in the order of the draw."""
        order = np.argsort(candidates)
        losses = np.empty(len(candidates))
        losses[order] = facts.local_losses(candidates[order], self._spec.images)
        return losses


class ReportedLosses(AskedLosses):
    """π_rpow-d: the candidates' losses are those that they reported with their last update, infinite before.

    Interpretation: the reported loss is the mean over the last local epoch; with one epoch it is the mean over all
        local steps, as in the paper.
    """

    reads = frozenset({"data_sizes", "loss"})

    def __init__(self, seed: int, spec: PowerOfChoice) -> None:
        super().__init__(seed, spec)
        self._reported: dict[int, float] = {}

    def observe(self, feedback: SelectionFeedback) -> None:
        self._reported.update(zip(feedback.client.tolist(), feedback.loss.tolist(), strict=True))

    def _losses(self, candidates: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        return np.array([self._reported.get(client, math.inf) for client in candidates.tolist()])


@SELECTORS.register("power_of_choice")
class PowerOfChoice(SelectorSpec):
    """Power-of-Choice (Cho, Wang and Joshi, AISTATS 2022): of some random candidates those with the highest loss."""

    candidates: float = Field(2.0, ge=1, le=1e6, description="number of candidates d, in multiples of the cohort")
    losses: Literal["asked", "reported"] = Field("asked", description="asked: pow-d or cpow-d; reported: rpow-d")
    images: int | None = Field(None, ge=1, description="images that a candidate evaluates (cpow-d); null: all (pow-d)")

    def start(self, seed: int) -> AskedLosses:
        if self.losses == "reported":
            if self.images is not None:
                raise UserError("reported losses are not evaluated on images", field="images")
            return ReportedLosses(seed, self)
        return AskedLosses(seed, self)
