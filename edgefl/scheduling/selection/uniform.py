"""Uniform selection without replacement, and the same clients in every round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, Selector, SelectorSpec


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
