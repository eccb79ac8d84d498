"""Decisions of a finished run taken again as they were, whatever the clock says now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.scheduling.blocks.base import BlockScheduler
from edgefl.scheduling.blocks.makespan import BlockForecast
from edgefl.scheduling.selection.base import Facts, Selector


class HeldSelector(Selector):
    """Picks whom the finished run picked.

    Args:
        cohorts: by round.
    """

    def __init__(self, cohorts: Mapping[int, Sequence[int]]) -> None:
        self._cohorts = cohorts

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        """See :class:`~edgefl.scheduling.selection.base.Selector`; a round that never was has any clients."""
        del facts
        held = self._cohorts.get(round)
        return available[:cohort] if held is None else np.array(held, np.int64)


class HeldScheduler(BlockScheduler):
    """Sends each client as many blocks as the finished run sent it.

    Args:
        alphas: by round, each client's number.
    """

    def __init__(self, alphas: Mapping[int, Mapping[int, int]]) -> None:
        self._alphas = alphas

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast | None = None) -> dict[int, int]:
        """See :class:`~edgefl.scheduling.blocks.base.BlockScheduler`; a round that never was sends one block."""
        del forecast
        held = self._alphas.get(round, {})
        return {client: held.get(client, 1) for client in cohort}
