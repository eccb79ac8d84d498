"""Selectors that learn nothing: uniform, fixed, data-aware (coverage of classes), and deadline-aware (FedCS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, Selector, SelectorSpec
from edgefl.units import ShortSeconds, at_most


def sample(draws: np.random.Generator, available: NDArray[np.int64], cohort: int) -> NDArray[np.int64]:
    """``cohort`` of the available clients, all subsets equally likely, ascending; memory is proportional to the cohort.

    >>> sample(np.random.default_rng(0), np.array([3, 5, 8]), 3)
    array([3, 5, 8])
    """
    places = draws.choice(len(available), size=min(cohort, len(available)), replace=False, shuffle=False)
    places.sort()
    return available[places]


@dataclass(frozen=True)
class UniformSelector(Selector):
    """Every set of ``cohort`` available clients is as likely as any other."""

    seed: int

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        return sample(generator(self.seed, "selection", round), available, cohort)


@SELECTORS.register("uniform")
class Uniform(SelectorSpec):
    """Uniform without replacement (FedAvg's sampling)."""

    def start(self, seed: int) -> UniformSelector:
        return UniformSelector(seed)


@dataclass(frozen=True)
class FixedSelector(Selector):
    """The listed clients that are available; without a list, the first available clients."""

    clients: tuple[int, ...] | None

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        if self.clients is None:
            return available[:cohort].copy()
        return np.intersect1d(np.asarray(self.clients, dtype=np.int64), available)[:cohort]

    def candidates(self) -> NDArray[np.int64] | None:
        return None if self.clients is None else np.array(sorted(self.clients), dtype=np.int64)


@SELECTORS.register("fixed")
class Fixed(SelectorSpec):
    """The same clients every round (FedBR's setup as we interpret it, with ten active clients)."""

    clients: tuple[int, ...] | None = Field(
        default=None, min_length=1, description="their numbers, from 0; the first `training.cohort` clients when null"
    )

    def start(self, seed: int) -> FixedSelector:
        if self.clients is not None and (len(set(self.clients)) < len(self.clients) or min(self.clients) < 0):
            raise UserError("expected different clients, numbered from 0", field="clients")
        return FixedSelector(self.clients)


@dataclass(frozen=True)
class CoverageSelector(Selector):
    """Uniform among the cohorts that hold every class which any available client holds, by rejection.

    After ``tries`` unsuccessful draws the last one is repaired. One at a time, a client whose classes the others also
    hold (or, if there is none, the client whose removal loses the fewest classes) is replaced by the client that adds
    the most missing classes, as long as this increases the number of classes.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"label_support"})

    seed: int
    tries: int

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        support = facts.label_support[available]
        draws = generator(self.seed, "selection", round)
        reachable = int(support.any(axis=0).sum())
        places = np.arange(len(available))
        chosen = sample(draws, places, cohort)
        for _ in range(self.tries - 1):
            if _covered(support, chosen) == reachable:
                break
            chosen = sample(draws, places, cohort)
        return available[_repaired(support, chosen, reachable)]


def _covered(support: NDArray[np.bool_], chosen: NDArray[np.int64]) -> int:
    return int(support[chosen].any(axis=0).sum())


def _repaired(support: NDArray[np.bool_], chosen: NDArray[np.int64], reachable: int) -> NDArray[np.int64]:
    covered = _covered(support, chosen)
    while covered < reachable:
        holders = support[chosen].sum(axis=0)
        lost = (support[chosen] & (holders == 1)).sum(axis=1)
        kept = np.delete(chosen, int(lost.argmin()))
        gain = (support & ~support[kept].any(axis=0)).sum(axis=1)
        gain[kept] = -1
        candidate = np.sort(np.append(kept, int(gain.argmax())))
        better = _covered(support, candidate)
        if better <= covered:
            break
        chosen, covered = candidate, better
    return chosen


@SELECTORS.register("coverage")
class Coverage(SelectorSpec):
    """FedADC's data-aware selection: cohorts that together have every class (Ozfatura et al., Sec. IV-E)."""

    tries: int = Field(default=1000, ge=1, description="draws before the last one is repaired")

    def start(self, seed: int) -> CoverageSelector:
        return CoverageSelector(seed, self.tries)


@dataclass(frozen=True)
class DeadlineSelector(Selector):
    """FedCS's two steps (Nishio and Yonetani 2019, Protocol 2): query random clients, then pick greedily.

    Each step adds the client that lengthens the round least, as long as the round stays within the deadline. If no
    client is fast enough, the fastest one takes part alone, so that a round is never empty.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"foreseen"})

    seed: int
    spec: Deadline

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        number = max(cohort, int(self.spec.asked * cohort + 0.5))
        asked = sample(generator(self.seed, "selection", round), available, number)
        seconds = facts.foreseen(asked)
        ready, upload = seconds.download + seconds.compute, seconds.upload
        chosen: list[int] = []
        left = np.ones(len(asked), dtype=bool)
        elapsed = 0.0
        while len(chosen) < cohort and left.any():
            after = np.where(left, self._after(elapsed, ready, upload), np.inf)
            best = int(after.argmin())
            if not at_most(after[best], self.spec.deadline) and chosen:
                break
            chosen.append(best)
            left[best] = False
            elapsed = float(after[best])
            if not at_most(elapsed, self.spec.deadline):
                break
        return np.sort(asked[chosen])

    def _after(self, elapsed: float, ready: NDArray[np.float64], upload: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the round would end with each client added; in sequence, an upload waits for the uploads before it."""
        if self.spec.uploads == "sequential":
            return np.asarray(np.maximum(elapsed, ready) + upload)
        return np.asarray(np.maximum(elapsed, ready + upload))


@SELECTORS.register("deadline")
class Deadline(SelectorSpec):
    """FedCS (Nishio and Yonetani 2019): clients that are predicted to meet the deadline, fastest first."""

    deadline: Annotated[ShortSeconds, Field(gt=0)] = Field(description="limit on the predicted seconds of a round")
    asked: float = Field(
        default=3.0, ge=1, description="how many random clients are queried, in multiples of the cohort"
    )
    uploads: Literal["parallel", "sequential"] = Field(
        default="parallel", description="whether predicted uploads run in parallel, or one after another as in FedCS"
    )

    def start(self, seed: int) -> DeadlineSelector:
        return DeadlineSelector(seed, self)
