"""The best blocks that a round's time and bytes allow, by integer programming."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.scheduling.blocks.base import (
    BLOCK_SCHEDULERS,
    BlockFeedback,
    BlockForecast,
    BlockScheduler,
    BlockSchedulerSpec,
)
from edgefl.units import Bytes, Seconds


class OptimalScheduler(BlockScheduler):
    """Maximise Σ_k d_k α_k with each client's predicted time within ``seconds`` and the downlinks within ``bytes``.

    d_k is the distance between the client's last returned model and the aggregate, as a share of its cohort's, times
    the cohort (so 1 on average, and 1 for clients without feedback so far). Where even the smallest choice of a client
    (or of all clients) exceeds a limit, the smallest choice is taken. A limit may be infinite. ``arms`` is M-1, the
    largest α of a partial round.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"distance", "foreseen"})

    def __init__(self, arms: int, *, seconds: float, bytes: float) -> None:
        self._arms = arms
        self._seconds = seconds
        self._bytes = bytes
        self._distance: dict[int, float] = {}

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        worth = np.array([self._distance.get(client, 1.0) for client in cohort])
        # A choice that changes nothing has the value 0; the smallest α is taken.
        worth = np.where(forecast.free, worth, 0.0)
        alphas = best_blocks(
            worth, forecast.seconds[:, : self._arms], forecast.bytes[:, : self._arms], self._seconds, self._bytes
        )
        return {client: int(alpha) for client, alpha in zip(cohort, alphas, strict=True)}

    def observe(self, feedback: BlockFeedback) -> None:
        mean = float(feedback.distance.mean())
        for client, distance in zip(feedback.client.tolist(), feedback.distance.tolist(), strict=True):
            self._distance[client] = distance / mean if mean > 0 else 1.0


def best_blocks(
    worth: NDArray[np.float64],
    seconds: NDArray[np.float64],
    bytes: NDArray[np.int64],
    most_seconds: float,
    most_bytes: float,
) -> NDArray[np.int64]:
    """α_k ``[clients]`` in 1 … arms that maximises Σ worth_k α_k within the limits.

    ``worth`` is the value of one block for each client ``[clients]``; ``seconds`` and ``bytes`` are of each choice
    ``[clients, arms]``. A limit may be infinite; the one on bytes is for all clients together.

    There is one binary variable for each client and choice, and one choice for each client (HiGHS through scipy). A
    choice that is too slow is fixed to 0, unless it is the client's fastest one.

    >>> seconds, bytes = np.array([[1., 2., 3.], [2., 4., 6.]]), np.array([[1, 2, 3], [1, 2, 3]])
    >>> best_blocks(np.array([1.0, 9.0]), seconds, bytes, 4.0, 3).tolist()
    [1, 2]
    """
    clients, arms = seconds.shape
    able = seconds <= most_seconds
    quickest = seconds.argmin(axis=1)
    able[np.arange(clients)[~able.any(axis=1)], quickest[~able.any(axis=1)]] = True
    least = np.where(able, bytes, np.iinfo(np.int64).max).min(axis=1)
    if least.sum() >= most_bytes:
        return np.asarray(np.where(able, bytes, np.iinfo(np.int64).max).argmin(axis=1) + 1)
    if np.isinf(most_bytes):
        # Without a common limit the best choice of each client is the overall optimum.
        gain = np.where(able, worth[:, None] * np.arange(1, arms + 1), -1.0)
        return np.asarray(gain.argmax(axis=1) + 1)
    return _program(worth, able, bytes, most_bytes)


def _program(
    worth: NDArray[np.float64], able: NDArray[np.bool_], bytes: NDArray[np.int64], most_bytes: float
) -> NDArray[np.int64]:
    from scipy.optimize import Bounds, LinearConstraint, milp

    clients, arms = able.shape
    one_each = np.kron(np.eye(clients), np.ones(arms))
    budget = bytes.reshape(1, -1) / most_bytes  # of the order of 1, as the solver's tolerances require
    found = milp(
        -(worth[:, None] * np.arange(1, arms + 1)).ravel(),
        integrality=np.ones(clients * arms),
        bounds=Bounds(0, able.ravel().astype(float)),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(budget, -np.inf, 1)],
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise RuntimeError(f"the integer program of {clients} clients was not solved: {found.message}")
    return np.asarray(found.x.reshape(clients, arms).argmax(axis=1) + 1)


@BLOCK_SCHEDULERS.register("optimal")
class Optimal(BlockSchedulerSpec):
    """Maximise Σ d_k α_k within limits on time and bytes: a reference for greedy schedulers."""

    seconds: Annotated[Seconds, Field(gt=0)] | None = Field(
        default=None, description="T, the limit on each client's predicted seconds in a partial round; null: no limit"
    )
    bytes: Annotated[Bytes, Field(gt=0)] | None = Field(
        default=None, description="of all downlinks of a partial round together; null: no limit"
    )

    def start(self, seed: int, blocks: int) -> OptimalScheduler:
        limits = {
            "seconds": np.inf if self.seconds is None else self.seconds,
            "bytes": np.inf if self.bytes is None else self.bytes,
        }
        return OptimalScheduler(max(1, blocks - 1), **limits)
