"""Selection of the clients that will soon be unavailable, before they are."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectorSpec
from edgefl.units import Seconds


class ReflSelector(SeededSelector["Refl"]):
    """REFL's intelligent participant selection (Abdelmoniem et al., EuroSys 2023, Alg. 1 and Sec. 4.1).

    Each available client reports the probability that it is available in the window [μ, 2μ] from now, where μ is the
    expected duration of a round: μ_t = (1 - α) D_{t-1} + α μ_{t-1} for a last round of D_{t-1} seconds. The clients
    with the lowest probabilities are picked; equal ones in random order. A picked client then rests ``rest`` rounds.

    Interpretations: a report is the share of the window in which the client is available according to its trace, as a
        perfect forecast would predict it; with the probability 1 - ``accuracy`` the report is wrong, 1 minus that
        share. Clients that rest are picked last, so that a cohort is not smaller because of them. D_{t-1} is the time
        between two picks.

    Not part of this selector: REFL's smaller cohorts when late updates are expected (it needs late updates, which
    synchronous rounds discard), and its weights of stale updates. In an asynchronous protocol the staleness
    ``{kind: polynomial, exponent: 1}`` is the damping part 1 / (τ + 1) of those weights.
    """

    reads = frozenset({"now", "availability"})

    def __init__(self, seed: int, spec: Refl) -> None:
        super().__init__(seed, spec)
        self._duration = spec.duration
        self._before: float | None = None
        self._rested: dict[int, int] = {}

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        if self._before is not None:
            alpha = self._spec.smoothing
            self._duration = (1 - alpha) * (facts.now - self._before) + alpha * self._duration
        self._before = facts.now
        share = facts.availability(available, self._duration, 2 * self._duration)
        draws = generator(self._seed, "selection", round)
        wrong = draws.random(len(available)) >= self._spec.accuracy
        reports = np.where(wrong, 1 - share, share)
        resting = np.array([self._rested.get(client, -1) >= round for client in available.tolist()])
        order = np.lexsort((draws.permutation(len(available)), reports, resting))
        picked = np.sort(available[order[:cohort]])
        self._rested.update(dict.fromkeys(picked.tolist(), round + self._spec.rest))
        return picked


@SELECTORS.register("refl")
class Refl(SelectorSpec):
    """REFL's selection (Abdelmoniem et al., EuroSys 2023): clients that will soon be unavailable come first."""

    duration: Annotated[Seconds, Field(gt=0, le=1e9)] = Field(60.0, description="expected seconds of the first round")
    smoothing: float = Field(default=0.25, ge=0, le=1, description="weight α of the earlier expectation")
    accuracy: float = Field(default=0.9, ge=0, le=1, description="probability that a client's forecast is right")
    rest: int = Field(default=5, ge=0, description="rounds in which a client does not take part again")

    def start(self, seed: int) -> ReflSelector:
        return ReflSelector(seed, self)
