"""The interface of block schedulers: choose each client's number of blocks α from forecasts, and learn from results."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import WrongAnswer, one_line
from edgefl.options import Options
from edgefl.registry import Registry


class BlockForecast(NamedTuple):
    """The cost of each choice for each client of a cohort; clients in the cohort's order, column α-1 for α = 1 … M."""

    # of the client's whole participation, alone on its path at the present capacities [clients, M]; infinite where a
    # link is down
    seconds: NDArray[np.float64]
    bytes: NDArray[np.int64]  # of its downlink [clients, M]
    # whether the choice matters: False where the client receives the whole model in any case [clients]
    free: NDArray[np.bool_]

    def makespan(self, alphas: NDArray[np.int64]) -> float:
        """The longest participation among clients whose choice matters, by their α; 0 without such clients."""
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

    def reached(moment: float) -> int:
        return int(((seconds <= moment) * np.arange(1, seconds.shape[1] + 1)).max(axis=1).sum())

    place = bisect_left(moments.tolist(), total, key=reached)
    return float(moments[place]) if place < len(moments) else float("inf")


class BlockFeedback(NamedTuple):
    """The results of one round for its aggregated clients; arrays with one entry for each client, in any order."""

    client: NDArray[np.int64]
    alpha: NDArray[np.int64]  # the α of each client (as choose returned it), M where it received the whole model
    # squared L2 distance between the returned local model and the new aggregate (not normalised)
    distance: NDArray[np.float64]
    loss: NDArray[np.float64]  # mean cross-entropy of the local path over the last local epoch, ζ_L
    compute_seconds: NDArray[np.float64]
    transfer_seconds: NDArray[np.float64]


class Weighed(NamedTuple):
    """What the value of a chosen α was the sum of, p_{k,m} and the bonus of Eq. 24 (Liu et al. 2023); no units."""

    reward: float
    bonus: float


class BlockScheduler(ABC):
    """The state of one run's block scheduler."""

    reads: ClassVar[frozenset[str]] = frozenset()
    """The inputs that its decisions depend on: names of :class:`BlockFeedback`'s arrays, and ``foreseen``."""

    @abstractmethod
    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        """The number of blocks α of each client of a cohort, in partial rounds only, in order from 0."""

    def weighed(self) -> Mapping[int, Weighed]:
        """What the last choice rested on, by client, for the log; empty if it adds no bonus to a reward."""
        return {}

    def observe(self, feedback: BlockFeedback) -> None:  # noqa: B027  (not every scheduler learns)
        """Learn from a finished round, before the next :meth:`choose`; α is M for a client with the whole model."""


def checked_alphas(answer: Mapping[int, int], cohort: Sequence[int], blocks: int) -> dict[int, int]:
    """The blocks of each client, 1 to M, that :meth:`BlockScheduler.choose` returned; WrongAnswer for other answers.

    >>> checked_alphas({3: np.int64(2), 5: 4}, [3, 5], 4)
    {3: 2, 5: 4}
    """
    whole = all(isinstance(alpha, int | np.integer) and 1 <= alpha <= blocks for alpha in answer.values())
    if set(answer) != set(cohort) or not whole:
        message = f"it returned {one_line(answer)}; expected 1 to {blocks} for clients {one_line(list(cohort))}"
        raise WrongAnswer(message)
    return {client: int(answer[client]) for client in cohort}


class BlockSchedulerSpec(Options):
    """A block scheduler as a scenario describes it; its fields are the options."""

    @abstractmethod
    def start(self, seed: int, blocks: int) -> BlockScheduler:
        """The scheduler of a run, for a model of M ``blocks``; UserError if the options do not fit it."""


BLOCK_SCHEDULERS: Registry[type[BlockSchedulerSpec]] = Registry(
    "block scheduler", package="edgefl.scheduling.blocks", group="edgefl.block_schedulers", base=BlockSchedulerSpec
)
"""Every block scheduler by name; ``edgefl.block_schedulers`` entry points add to it."""
