"""The predicted cost of a choice of blocks, and the shortest round that sends as many blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class BlockForecast(NamedTuple):
    """The cost of each choice for each client of a cohort; clients in the cohort's order, column α-1 for α = 1 … M.

    Attributes:
        seconds: of the client's whole participation, alone on its path at the present capacities ``[clients, M]``;
            infinite where a link is down.
        bytes: of its downlink ``[clients, M]``.
        free: whether the choice matters: False where the client receives the whole model in any case ``[clients]``.
    """

    seconds: NDArray[np.float64]
    bytes: NDArray[np.int64]
    free: NDArray[np.bool_]

    def makespan(self, alphas: NDArray[np.int64]) -> float:
        """The longest participation among clients whose choice matters, given α of each client; 0 without such clients.

        >>> forecast = BlockForecast(np.array([[1., 2.], [3., 5.]]), np.ones((2, 2), np.int64), np.array([True, True]))
        >>> forecast.makespan(np.array([2, 1]))
        3.0
        """
        chosen = self.seconds[np.arange(len(alphas)), alphas - 1]
        return float(chosen[self.free].max(initial=0.0))


def least_makespan(forecast: BlockForecast, total: int, arms: int) -> float:
    """The shortest makespan of any choice of 1 … ``arms`` blocks each that sends ``total`` blocks or more.

    Only clients whose choice matters count; it is infinite where no choice reaches the total. Within a makespan T,
    client k can receive at most α_k(T) blocks, and the sum of these never falls as T grows. So the smallest T among the
    table's entries that reaches the total is exact, and no integer program is needed.

    >>> forecast = BlockForecast(np.array([[1., 2.], [3., 5.]]), np.ones((2, 2), np.int64), np.array([True, True]))
    >>> [least_makespan(forecast, total, 2) for total in (2, 3, 4, 5)]
    [3.0, 3.0, 5.0, inf]
    """
    seconds = forecast.seconds[forecast.free, :arms]
    if not len(seconds):
        return 0.0 if total <= 0 else float("inf")
    moments = np.unique(seconds)
    # Every client needs at least one block, however slow it is.
    moments = moments[moments >= seconds.min(axis=1).max()]
    low, high = 0, len(moments)
    while low < high:
        middle = (low + high) // 2
        fitting = (seconds <= moments[middle]) * np.arange(1, seconds.shape[1] + 1)
        if fitting.max(axis=1).sum() >= total:
            high = middle
        else:
            low = middle + 1
    return float(moments[low]) if low < len(moments) else float("inf")
