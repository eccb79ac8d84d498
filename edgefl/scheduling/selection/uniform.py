"""Uniform selection."""

import numpy as np
from numpy.typing import NDArray

from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectorSpec


def sample(draws: np.random.Generator, available: NDArray[np.int64], cohort: int) -> NDArray[np.int64]:
    """``cohort`` of the available clients, all subsets equally likely, ascending; memory is proportional to the cohort.

    >>> sample(np.random.default_rng(0), np.array([3, 5, 8]), 3)
    array([3, 5, 8])
    """
    places = draws.choice(len(available), size=min(cohort, len(available)), replace=False, shuffle=False)
    places.sort()
    return available[places]


class UniformSelector(SeededSelector["Uniform"]):
    """Every set of ``cohort`` available clients is as likely as any other."""

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        return sample(generator(self._seed, "selection", round), available, cohort)


@SELECTORS.register("uniform")
class Uniform(SelectorSpec):
    """Uniform without replacement (FedAvg's sampling)."""

    def start(self, seed: int) -> UniformSelector:
        return UniformSelector(seed, self)
