"""The same clients in every round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.scheduling.selection.base import SELECTORS, Facts, Selector, SelectorSpec


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

    clients: tuple[int, ...] | None = Field(None, min_length=1, description="from 0; null: the first `training.cohort`")

    def start(self, seed: int) -> FixedSelector:
        if self.clients is not None and (len(set(self.clients)) < len(self.clients) or min(self.clients) < 0):
            raise UserError("expected different clients, numbered from 0", field="clients")
        return FixedSelector(self.clients)
