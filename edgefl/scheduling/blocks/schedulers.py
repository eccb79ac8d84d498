"""The block schedulers: fixed, all, random (the paper's FedBR-Ran), greedy (its GMBS), and optimal by programming."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.blocks.base import (
    BLOCK_SCHEDULERS,
    BlockFeedback,
    BlockForecast,
    BlockScheduler,
    BlockSchedulerSpec,
    Weighed,
)
from edgefl.units import Bytes, Seconds


@dataclass(frozen=True)
class ConstantScheduler(BlockScheduler):
    """α = ``alpha`` for every client."""

    alpha: int

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        return dict.fromkeys(cohort, self.alpha)


@BLOCK_SCHEDULERS.register("fixed")
class Fixed(BlockSchedulerSpec):
    """The same α for every client."""

    alpha: int = Field(ge=1, description="how many of the last blocks are sent, 1 … M")

    def start(self, seed: int, blocks: int) -> ConstantScheduler:
        if self.alpha > blocks:
            raise UserError(f"alpha is {self.alpha}, but the model has only {blocks} blocks", field="alpha")
        return ConstantScheduler(self.alpha)


@BLOCK_SCHEDULERS.register("all")
class All(BlockSchedulerSpec):
    """α = M: the whole model."""

    def start(self, seed: int, blocks: int) -> ConstantScheduler:
        return ConstantScheduler(blocks)


@dataclass(frozen=True)
class RandomScheduler(BlockScheduler):
    """α uniform over 1 … ``arms``, independently for each client and round."""

    seed: int
    arms: int

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        return {
            client: int(generator(self.seed, "random blocks", round, client).integers(1, self.arms + 1))
            for client in cohort
        }


@BLOCK_SCHEDULERS.register("random")
class Random(BlockSchedulerSpec):
    """Uniform over 1 … M-1 (Liu et al. 2023, Sec. V, FedBR-Ran)."""

    def start(self, seed: int, blocks: int) -> RandomScheduler:
        return RandomScheduler(seed, max(1, blocks - 1))


class GmbsScheduler(BlockScheduler):
    """Greedy choice among m = 1 … M-1 by averaged feedback plus a bonus for choices that were rarely made.

    Eqs. 19-24 and Alg. 1 of Liu et al. 2023, with these interpretations: feedback counts when it arrives and for the
    number of blocks that was chosen; the loss is compared with the client's own previous participation, so the first
    one only counts the choice; nothing decays while a client does not take part; t is the round's number from 0; ties
    are broken at random. ``lam`` is λ of Eq. 23, ``bonus_scale`` the factor on the bonus in Eq. 24 (1 in the paper).
    """

    reads = frozenset({"loss", "distance", "compute_seconds", "transfer_seconds"})

    def __init__(self, seed: int, arms: int, *, lam: float, bonus_scale: float) -> None:
        self._seed, self._lam, self._bonus_scale = seed, lam, bonus_scale
        self._remembered: defaultdict[int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(arms))
        self._played: defaultdict[int, NDArray[np.int64]] = defaultdict(lambda: np.zeros(arms, dtype=np.int64))
        self._loss: dict[int, float] = {}
        self._weighed: dict[int, Weighed] = {}

    def values(self, round: int, client: int) -> NDArray[np.float64]:
        """V_{k,m} = p_{k,m} + scale · √ln(t+1) / (n_{k,m} + 1) for m = 1 … M-1 (Eq. 24)."""
        return np.asarray(self._remembered[client] + self._bonus(round, client))

    def _bonus(self, round: int, client: int) -> NDArray[np.float64]:
        return np.asarray(self._bonus_scale * math.sqrt(math.log(round + 1)) / (self._played[client] + 1))

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        chosen, self._weighed = {}, {}
        for client in cohort:
            values = self.values(round, client)
            best = np.flatnonzero(values == values.max())
            # Without a random draw the first of equal values would always win, and every client would begin with one
            # block.
            arm = int(best[0] if len(best) == 1 else generator(self._seed, "gmbs ties", round, client).choice(best))
            reward, bonus = self._remembered[client][arm], self._bonus(round, client)[arm]
            self._weighed[client] = Weighed(float(reward), float(bonus))
            self._played[client][arm] += 1
            chosen[client] = arm + 1
        return chosen

    def weighed(self) -> Mapping[int, Weighed]:
        return self._weighed

    def observe(self, feedback: BlockFeedback) -> None:
        """Eqs. 19-21 and 23; an α outside 1 … M-1 (the whole model) is not an arm and only updates the loss."""
        slow = np.exp(_shares(feedback.compute_seconds) + _shares(feedback.transfer_seconds))
        weights = _shares(feedback.distance) / slow
        for client, alpha, weight, loss in zip(
            feedback.client.tolist(), feedback.alpha.tolist(), weights.tolist(), feedback.loss.tolist(), strict=True
        ):
            before = self._loss.get(client)
            self._loss[client] = loss
            remembered = self._remembered[client]
            if before is not None and 1 <= alpha <= len(remembered):
                reward = weight * (before - loss)
                remembered[alpha - 1] = self._lam * reward + (1 - self._lam) * remembered[alpha - 1]


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values divided by their sum; equal shares where they are all zero."""
    total = values.sum()
    return values / total if total > 0 else np.full(len(values), 1 / max(1, len(values)))


@BLOCK_SCHEDULERS.register("gmbs")
class Gmbs(BlockSchedulerSpec):
    """Options of :class:`GmbsScheduler`."""

    lam: float = Field(default=0.5, ge=0, le=1, description="weight λ of the newest feedback (Eq. 23)")
    bonus_scale: float = Field(default=1.0, ge=0, description="factor on the bonus for rarely played choices (Eq. 24)")

    def start(self, seed: int, blocks: int) -> GmbsScheduler:
        return GmbsScheduler(seed, max(1, blocks - 1), lam=self.lam, bonus_scale=self.bonus_scale)


class OptimalScheduler(BlockScheduler):
    """Maximise Σ_k d_k α_k with each client's predicted time within ``seconds`` and the downlinks within ``bytes``.

    d_k is the distance between the client's last returned model and the aggregate, as a share of its cohort's, times
    the cohort (so 1 on average, and 1 for clients without feedback so far). Where even the smallest choice of a client
    (or of all clients) exceeds a limit, the smallest choice is taken. A limit may be infinite. ``arms`` is M-1, the
    largest α of a partial round.
    """

    reads = frozenset({"distance", "foreseen"})

    def __init__(self, arms: int, *, seconds: float, bytes: float) -> None:
        self._arms, self._seconds, self._bytes = arms, seconds, bytes
        self._distance: dict[int, float] = {}

    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast) -> dict[int, int]:
        worth = np.array([self._distance.get(client, 1.0) for client in cohort])
        # A choice that changes nothing has the value 0; the smallest α is taken.
        worth = np.where(forecast.free, worth, 0.0)
        seconds, bytes = forecast.seconds[:, : self._arms], forecast.bytes[:, : self._arms]
        alphas = best_blocks(worth, seconds, bytes, self._seconds, self._bytes)
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

    seconds: Seconds | None = Field(None, gt=0, description="T, the limit on each client's predicted time; null: none")
    bytes: Bytes | None = Field(None, gt=0, description="of all downlinks of a round; null: no limit")

    def start(self, seed: int, blocks: int) -> OptimalScheduler:
        limits = {
            "seconds": np.inf if self.seconds is None else self.seconds,
            "bytes": np.inf if self.bytes is None else self.bytes,
        }
        return OptimalScheduler(max(1, blocks - 1), **limits)
