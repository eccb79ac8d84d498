"""Selection by utility: Oort."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectionFeedback, SelectorSpec
from edgefl.scheduling.selection.uniform import sample


class OortSelector(SeededSelector["Oort"]):
    """Oort (Lai et al., OSDI 2021, Alg. 1).

    A client's utility is its statistical utility n_k · loss, scaled to [0, 1] over the clients that were tried, plus
    √(0.1 ln R / L) for a client that last took part in pick L of R, times (T/t)^α where its seconds t exceed the
    preferred duration T. A share ε of a cohort explores clients that were never tried. The rest is drawn in proportion
    to utility from the clients that reach ``cutoff`` times the utility of the last one within the cohort's size. T is a
    percentile of the tried clients' seconds; the pacer raises it when utility falls between windows.

    Interpretations: the loss is a client's mean over its last epoch, where the paper uses the root of the mean squared
        losses of single images; untried clients are explored uniformly; no client is excluded because it took part
        often.
    """

    reads = frozenset({"loss", "samples", "seconds"})

    def __init__(self, seed: int, spec: Oort) -> None:
        super().__init__(seed, spec)
        self._statistical: dict[int, float] = {}
        self._seconds: dict[int, float] = {}
        self._last: dict[int, int] = {}
        self._picks = 0
        self._percentile = spec.percentile
        self._gathered: list[float] = []

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        self._picks += 1
        draws = generator(self._seed, "selection", round)
        cohort = min(cohort, len(available))
        tried = np.array([client in self._statistical for client in available.tolist()], dtype=bool)
        known, unknown = available[tried], available[~tried]
        share = max(self._spec.least_exploration, self._spec.exploration * self._spec.decay ** (self._picks - 1))
        explore = min(len(unknown), max(round_up(share * cohort), cohort - len(known)))
        exploited = self._exploit(draws, known, cohort - explore, facts)
        return np.sort(np.concatenate([exploited, sample(draws, unknown, explore)]))

    def observe(self, feedback: SelectionFeedback) -> None:
        utilities = feedback.samples * feedback.loss
        for client, utility, seconds in zip(
            feedback.client.tolist(), utilities.tolist(), feedback.seconds.tolist(), strict=True
        ):
            self._statistical[client] = utility
            self._seconds[client] = seconds
            self._last[client] = self._picks
        self._pace(float(utilities.sum()))

    def utilities(self, clients: NDArray[np.int64]) -> NDArray[np.float64]:
        """The utility of clients that were tried before."""
        statistical = np.array([self._statistical[client] for client in clients.tolist()])
        everyone = np.array(list(self._statistical.values()))
        spread = float(np.ptp(everyone))
        scaled = (statistical - everyone.min()) / spread if spread > 0 else np.ones(len(clients))
        age = np.array([self._last[client] for client in clients.tolist()])
        utility = scaled + np.sqrt(0.1 * math.log(max(1, self._picks)) / np.maximum(1, age))
        seconds = np.array([self._seconds[client] for client in clients.tolist()])
        preferred = np.percentile(list(self._seconds.values()), self._percentile)
        # A client without a duration to compare (0 s) is never too slow.
        penalty = np.where(seconds > preferred, (preferred / np.maximum(seconds, 1e-300)) ** self._spec.penalty, 1.0)
        return np.asarray(utility * penalty)

    def rewards(self, clients: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        """The figure by which clients that were tried before are compared: their utility."""
        return self.utilities(clients)

    def _exploit(
        self, draws: np.random.Generator, known: NDArray[np.int64], wanted: int, facts: Facts
    ) -> NDArray[np.int64]:
        if wanted <= 0:
            return known[:0]
        utility = self.rewards(known, facts)
        threshold = self._spec.cutoff * np.sort(utility)[-wanted]
        able = utility >= threshold
        weights = utility[able]
        total = weights.sum()
        chances = weights / total if total > 0 and np.count_nonzero(weights) >= wanted else None
        return np.asarray(draws.choice(known[able], size=wanted, replace=False, p=chances))

    def _pace(self, gathered: float) -> None:
        """After each window of rounds: if its utility is below that of the window before, raise the percentile."""
        self._gathered.append(gathered)
        window = self._spec.window
        if len(self._gathered) >= 2 * window and len(self._gathered) % window == 0:
            before, last = sum(self._gathered[-2 * window : -window]), sum(self._gathered[-window:])
            if before > last:
                self._percentile = min(100.0, self._percentile + self._spec.pacer_step)


def round_up(value: float) -> int:
    """The next whole number, up to rounding.

    >>> round_up(0.1 * 30), round_up(0.5)
    (3, 1)
    """
    return math.ceil(round(value, 9))


@SELECTORS.register("oort")
class Oort(SelectorSpec):
    """Oort (Lai et al., OSDI 2021): statistical utility with a penalty for slow clients, exploration and a pacer."""

    exploration: float = Field(default=0.9, ge=0, le=1, description="share ε of untried clients in the first cohort")
    decay: float = Field(default=0.98, gt=0, le=1, description="factor on ε from pick to pick")
    least_exploration: float = Field(default=0.2, ge=0, le=1, description="lower limit of ε")
    penalty: float = Field(default=2.0, ge=0, description="exponent α of the penalty (T/t)^α for slow clients")
    cutoff: float = Field(default=0.95, ge=0, le=1, description="share of the last utility that a client must reach")
    percentile: float = Field(30.0, ge=0, le=100, description="T, as a percentile of the tried clients' seconds")
    pacer_step: float = Field(default=5.0, ge=0, description="percent by which the pacer raises the percentile")
    window: int = Field(default=20, ge=1, description="rounds whose total utility the pacer compares")

    def start(self, seed: int) -> OortSelector:
        return OortSelector(seed, self)
