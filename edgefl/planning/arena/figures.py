"""The figures of an arena, as plain values that can be written as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SchedulerFigures:
    """What one scheduler's rounds cost, and whom they reached.

    Attributes:
        rounds: rounds that ended.
        makespan: mean seconds of a round, with what precedes it, such as asking clients for losses.
        joules: mean joules of a round.
        aggregated: mean number of updates of a round.
        jain: Jain's index of the clients' numbers of aggregated updates, 1 if all took part equally often.
        clients_seen: part of the clients of which an update was aggregated at least once.
        samples_seen: part of the training samples that these clients have.
        rounds_to_cover: the round after which every client had taken part; None if that did not happen.
        ratio_to_optimum: mean over the rounds of their seconds, from the selection on, relative to a certified lower
            bound on those of any cohort with as many updates; None if there is no bound.
        no_bound: why there is none.
        reads_losses: whether the scheduler reads losses, which are all equal without training.
        ended: why the rounds ended early; None if they did not.
    """

    rounds: int
    makespan: float | None
    joules: float | None
    aggregated: float | None
    jain: float | None
    clients_seen: float
    samples_seen: float
    rounds_to_cover: int | None
    ratio_to_optimum: float | None
    no_bound: str | None = None
    reads_losses: bool = False
    ended: str | None = None


@dataclass(frozen=True)
class Arena:
    """The comparison of schedulers.

    Attributes:
        scenario: its name.
        method: the label of the method whose work and bytes the rounds have.
        seed: of fleet, links and draws.
        rounds: simulated rounds of each scheduler.
        schedulers: the figures by scheduler.
        left_out: why other schedulers cannot be compared, by scheduler.
    """

    scenario: str
    method: str
    seed: int
    rounds: int
    schedulers: dict[str, SchedulerFigures]
    left_out: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything, in base units."""
        return asdict(self)

    def sentence(self) -> str:
        """The result in one sentence; empty if no scheduler had an update."""
        timed = {name: each.makespan for name, each in self.schedulers.items() if each.makespan is not None}
        even = {name: each.jain for name, each in self.schedulers.items() if each.jain is not None}
        if not timed or not even:
            return ""
        quick, fair = min(timed, key=timed.__getitem__), max(even, key=even.__getitem__)
        ratio = self.schedulers[quick].ratio_to_optimum
        far = "" if ratio is None else f", which is at most {ratio:.3g} times the shortest possible round"
        first = f"{quick} has the shortest rounds ({timed[quick]:.3g} s on average{far})"
        if quick == fair:
            return f"{first} and the most even participation (Jain's index {even[fair]:.2f})."
        return (
            f"{first}; {fair} has the most even participation (Jain's index {even[fair]:.2f}, {timed[fair]:.3g} s)."
            if fair in timed
            else f"{first}."
        )


def jain_index(times: NDArray[np.int64]) -> float | None:
    """Jain's index (Σx)² / (N Σx²) of the clients' numbers of updates (Jain, Chiu and Hawe, DEC-TR-301, 1984).

    It is 1 if all are equal, and k/N if k of N clients have equal numbers and the others none; None if all are 0.

    >>> jain_index(np.array([2, 2, 2])), jain_index(np.array([5, 0, 0, 0]))
    (1.0, 0.25)
    """
    squares = float((times.astype(np.float64) ** 2).sum())
    return None if squares == 0 else float(times.sum()) ** 2 / (len(times) * squares)


def mean(values: list[float]) -> float | None:
    """The mean; None without values."""
    return math.fsum(values) / len(values) if values else None
