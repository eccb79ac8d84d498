"""Selection of clients that are predicted to meet a deadline (FedCS)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectorSpec
from edgefl.scheduling.selection.uniform import sample
from edgefl.units import ShortSeconds, at_most


class DeadlineSelector(SeededSelector["Deadline"]):
    """FedCS's two steps (Nishio and Yonetani 2019, Protocol 2): query random clients, then pick greedily.

    Each step adds the client that lengthens the round least, as long as the round stays within the deadline. If no
    client is fast enough, the fastest one takes part alone, so that a round is never empty.
    """

    reads = frozenset({"foreseen"})

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        number = max(cohort, int(self._spec.asked * cohort + 0.5))
        asked = sample(generator(self._seed, "selection", round), available, number)
        seconds = facts.foreseen(asked)
        ready, upload = seconds.download + seconds.compute, seconds.upload
        chosen: list[int] = []
        left = np.ones(len(asked), dtype=bool)
        elapsed = 0.0
        while len(chosen) < cohort and left.any():
            after = np.where(left, self._after(elapsed, ready, upload), np.inf)
            best = int(after.argmin())
            if not at_most(after[best], self._spec.deadline) and chosen:
                break
            chosen.append(best)
            left[best] = False
            elapsed = float(after[best])
            if not at_most(elapsed, self._spec.deadline):
                break
        return np.sort(asked[chosen])

    def _after(self, elapsed: float, ready: NDArray[np.float64], upload: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the round would end with each client added; in sequence, an upload waits for the uploads before it."""
        if self._spec.uploads == "sequential":
            return np.asarray(np.maximum(elapsed, ready) + upload)
        return np.asarray(np.maximum(elapsed, ready + upload))


@SELECTORS.register("deadline")
class Deadline(SelectorSpec):
    """FedCS (Nishio and Yonetani 2019): clients that are predicted to meet the deadline, fastest first."""

    deadline: Annotated[ShortSeconds, Field(gt=0)] = Field(description="limit on the predicted seconds of a round")
    asked: float = Field(3.0, ge=1, description="how many random clients are queried, in multiples of the cohort")
    uploads: Literal["parallel", "sequential"] = Field(
        default="parallel", description="whether predicted uploads run in parallel, or one after another as in FedCS"
    )

    def start(self, seed: int) -> DeadlineSelector:
        return DeadlineSelector(seed, self)
