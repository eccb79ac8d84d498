"""Deadline-aware selection: as many clients as a deadline allows, quickest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, Selector, SelectorSpec
from edgefl.scheduling.selection.uniform import sample
from edgefl.units import Seconds


@dataclass(frozen=True)
class DeadlineSelector(Selector):
    """FedCS's two steps (Nishio and Yonetani 2019, Protocol 2): ask some clients at random, then pick greedily.

    Each time the client is added that lengthens the round least, as long as the round stays within the deadline. Where
    nobody is quick enough, the quickest goes alone, so that a round is never empty.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"foreseen"})

    seed: int
    deadline: float
    asked: float
    uploads: Literal["parallel", "sequential"]

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """See :class:`Selector`.

        Raises:
            UserError: how long clients take is not known.
        """
        if facts.foreseen is None:
            raise UserError("selection 'deadline' needs to foresee how long clients take; this world cannot say")
        number = max(cohort, round_half_up(self.asked * cohort))
        asked = sample(generator(self.seed, "selection", round), available, number)
        seconds = facts.foreseen(asked)
        ready, upload = seconds.download + seconds.compute, seconds.upload
        chosen: list[int] = []
        left = np.ones(len(asked), dtype=bool)
        elapsed = 0.0
        while len(chosen) < cohort and left.any():
            after = np.where(left, self._after(elapsed, ready, upload), np.inf)
            best = int(after.argmin())
            if not after[best] <= self.deadline and chosen:
                break
            chosen.append(best)
            left[best] = False
            elapsed = float(after[best])
            if elapsed > self.deadline:
                break
        return np.sort(asked[chosen])

    def _after(self, elapsed: float, ready: NDArray[np.float64], upload: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the round would end with each client added; one after the other, an upload waits for those before."""
        if self.uploads == "sequential":
            return np.asarray(np.maximum(elapsed, ready) + upload)
        return np.asarray(np.maximum(elapsed, ready + upload))


def round_half_up(value: float) -> int:
    """The nearest whole number.

    >>> round_half_up(2.5)
    3
    """
    return int(value + 0.5)


@SELECTORS.register("deadline")
class Deadline(SelectorSpec):
    """FedCS (Nishio and Yonetani 2019): clients that are foreseen to be in time, quickest first."""

    deadline: Annotated[Seconds, Field(gt=0)] = Field(description="seconds that a round may take by what is foreseen")
    asked: float = Field(
        default=3.0, ge=1, description="how many times the cohort are asked, at random, how long they would take"
    )
    uploads: Literal["parallel", "sequential"] = Field(
        default="parallel", description="whether uploads are foreseen side by side, or one after another as in FedCS"
    )

    def start(self, seed: int) -> DeadlineSelector:
        """See :class:`SelectorSpec`."""
        return DeadlineSelector(seed, self.deadline, self.asked, self.uploads)
