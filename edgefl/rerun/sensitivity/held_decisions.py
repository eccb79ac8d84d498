"""Repeat the decisions of a finished run, independent of the new times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.scheduling.blocks.base import BlockScheduler
from edgefl.scheduling.blocks.makespan import BlockForecast
from edgefl.scheduling.selection.base import Facts, Selector


class HeldSelector(Selector):
    """Selects the clients that the finished run selected.

    Args:
        cohorts: the cohorts by round.
    """

    def __init__(self, cohorts: Mapping[int, Sequence[int]]) -> None:
        self._cohorts = cohorts

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """See :class:`~edgefl.scheduling.selection.base.Selector`; for other rounds, the first clients."""
        del facts
        held = self._cohorts.get(round)
        return available[:cohort] if held is None else np.array(held, np.int64)


class HeldScheduler(BlockScheduler):
    """Sends each client as many blocks as in the finished run.

    Args:
        alphas: each client's number of blocks, by round.
    """

    def __init__(self, alphas: Mapping[int, Mapping[int, int]]) -> None:
        self._alphas = alphas

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast | None = None) -> dict[int, int]:
        """See :class:`~edgefl.scheduling.blocks.base.BlockScheduler`; for other rounds, one block each."""
        del forecast
        held = self._alphas.get(round, {})
        return {client: held.get(client, 1) for client in cohort}
