"""Data-aware selection: cohorts that together have every class."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectorSpec
from edgefl.scheduling.selection.uniform import sample


class CoverageSelector(SeededSelector["Coverage"]):
    """Uniform among the cohorts that hold every class which any available client holds, by rejection.

    After ``tries`` unsuccessful draws the last one is repaired. One at a time, a client whose classes the others also
    hold (or, if there is none, the client whose removal loses the fewest classes) is replaced by the client that adds
    the most missing classes, as long as this increases the number of classes.
    """

    reads = frozenset({"label_support"})

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        support = facts.label_support[available]
        draws = generator(self._seed, "selection", round)
        reachable = int(support.any(axis=0).sum())
        places = np.arange(len(available))
        chosen = sample(draws, places, cohort)
        for _ in range(self._spec.tries - 1):
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
        return CoverageSelector(seed, self)
