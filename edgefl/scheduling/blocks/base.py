"""The interface of block schedulers: choose each client's number of blocks α, and learn from the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import WrongAnswer, one_line
from edgefl.options import Options
from edgefl.registry import Registry, chosen_part, class_of
from edgefl.scheduling.blocks.makespan import BlockForecast


class BlockFeedback(NamedTuple):
    """The results of one round for its aggregated clients; arrays with one entry for each client, in any order.

    Attributes:
        client: the clients' numbers.
        alpha: the α of each client (as :meth:`BlockScheduler.choose` returned it), M where it received the whole model.
        distance: squared L2 distance between the returned local model and the new aggregate (not normalised).
        loss: mean cross-entropy of the local path over the last local epoch, ζ_L.
        compute_seconds: seconds of local training.
        transfer_seconds: seconds of downlink and uplink.
    """

    client: NDArray[np.int64]
    alpha: NDArray[np.int64]
    distance: NDArray[np.float64]
    loss: NDArray[np.float64]
    compute_seconds: NDArray[np.float64]
    transfer_seconds: NDArray[np.float64]


class BlockScheduler(ABC):
    """The state of one run's block scheduler."""

    reads: ClassVar[frozenset[str]] = frozenset()
    """The inputs that its decisions depend on: names of :class:`BlockFeedback`'s arrays, and ``foreseen``."""

    @abstractmethod
    def choose(self, round: int, cohort: Sequence[int], forecast: BlockForecast | None = None) -> dict[int, int]:
        """The number of blocks α for each client of the cohort; called in partial rounds only, in the order of rounds.

        Args:
            round: counts from 0.
            cohort: the clients that will receive blocks: all clients of a synchronous round, or the clients dispatched
                together in other protocols.
            forecast: the cost of each choice; ``None`` where the world cannot compute it.
        """

    def observe(self, feedback: BlockFeedback) -> None:  # noqa: B027  (not every scheduler learns)
        """Learn from a finished round, before the next :meth:`choose`; α is M for a client with the whole model."""


def checked_alphas(answer: object, cohort: Sequence[int], blocks: int) -> dict[int, int]:
    """The number of blocks for each client that :meth:`BlockScheduler.choose` returned.

    Args:
        answer: what it returned.
        cohort: the cohort that it was called with.
        blocks: M, the model's blocks.

    Raises:
        WrongAnswer: the answer is not a whole number from 1 to M for each client.

    >>> checked_alphas({3: np.int64(2), 5: 4}, [3, 5], 4)
    {3: 2, 5: 4}
    """
    if not isinstance(answer, Mapping):
        raise WrongAnswer(f"it returned {one_line(answer)}; expected a mapping from client to number of blocks")
    for client in cohort:
        if client not in answer:
            raise WrongAnswer(f"it returned no number of blocks for client {client}")
        alpha = answer[client]
        if isinstance(alpha, bool) or not isinstance(alpha, int | np.integer) or not 1 <= alpha <= blocks:
            raise WrongAnswer(f"it returned {one_line(alpha)} blocks for client {client}; expected 1 to {blocks}")
    if len(answer) != len(cohort):
        strangers = [client for client in answer if client not in set(cohort)]
        raise WrongAnswer(f"it returned blocks for {one_line(strangers[0])}, which is not a client of the cohort")
    return {client: int(answer[client]) for client in cohort}


class BlockSchedulerSpec(Options):
    """A block scheduler as a scenario describes it; its fields are the options."""

    @abstractmethod
    def start(self, seed: int, blocks: int) -> BlockScheduler:
        """The scheduler of a run.

        Args:
            seed: the run's seed.
            blocks: M, the model's blocks.

        Raises:
            UserError: the options do not fit a model of M blocks.
        """


BLOCK_SCHEDULERS: Registry[type[BlockSchedulerSpec]] = Registry(
    "block scheduler",
    package="edgefl.scheduling.blocks",
    group="edgefl.block_schedulers",
    check=class_of(BlockSchedulerSpec),
)
"""Every block scheduler by name; ``edgefl.block_schedulers`` entry points add to it."""


def block_scheduler(entry: str | Mapping[str, Any]) -> BlockSchedulerSpec:
    """The spec of a name or of a mapping with ``kind`` and options.

    Raises:
        UserError: unknown name or option.

    >>> block_scheduler({"kind": "fixed", "alpha": 3})
    Fixed(alpha=3)
    """
    return chosen_part(BLOCK_SCHEDULERS, entry)
