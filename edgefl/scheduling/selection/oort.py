"""Selection by utility: Oort, EAFL with full batteries, and Power-of-Choice, the highest losses of some candidates."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SelectionFeedback, Selector, SelectorSpec
from edgefl.scheduling.selection.uniform import sample


class OortSelector(Selector):
    """Oort (Lai et al., OSDI 2021, Alg. 1).

    A client's utility is its statistical utility n_k · loss, scaled to [0, 1] over the clients that were tried, plus
    √(0.1 ln R / L) for a client that last took part in pick L of R, times (T/t)^α where its seconds t exceed the
    preferred duration T. A share ε of a cohort explores clients that were never tried. The rest is drawn in proportion
    to utility from the clients that reach ``cutoff`` times the utility of the last one within the cohort's size. T is a
    percentile of the tried clients' seconds; the pacer raises it when the total utility falls from one window to the
    next.

    Interpretations: the loss is a client's mean over its last epoch, where the paper uses the root of the mean squared
        losses of single images; untried clients are explored uniformly; no client is excluded because it took part
        often.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"loss", "samples", "seconds"})

    def __init__(self, seed: int, spec: Oort) -> None:
        self._seed = seed
        self._spec = spec
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
    percentile: float = Field(
        default=30.0, ge=0, le=100, description="preferred duration T, as a percentile of the tried clients' seconds"
    )
    pacer_step: float = Field(default=5.0, ge=0, description="percent by which the pacer raises the percentile")
    window: int = Field(default=20, ge=1, description="rounds whose total utility the pacer compares")

    def start(self, seed: int) -> OortSelector:
        return OortSelector(seed, self)


class EaflSelector(OortSelector):
    """EAFL (Arouj and Abdelmoniem 2022, Eq. 1): reward(i) = f · Util(i) + (1 - f) · power(i).

    Util is Oort's utility with its penalty for slow clients, and power(i) the level of the battery minus what the next
    round is expected to use. Rewards take the place of Oort's utilities; exploration and pacer stay Oort's.

    Interpretations: level and use are parts of the battery's capacity; a device without a battery has the level 1 and
        uses nothing; the expected use is that of the round with the whole model, alone on the client's path (download,
        computation, upload, and idle watts during transfers); a negative power counts as 0, because rewards are
        chances of being drawn.
    """

    reads: ClassVar[frozenset[str]] = OortSelector.reads | {"charge"}

    def __init__(self, seed: int, spec: Eafl) -> None:
        super().__init__(seed, spec)
        self._share = spec.f

    def rewards(self, clients: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        charge = facts.charge(clients)
        power = np.maximum(charge.level - charge.used, 0.0)
        return np.asarray(self._share * self.utilities(clients) + (1 - self._share) * power)


@SELECTORS.register("eafl")
class Eafl(Oort):
    """EAFL (Arouj and Abdelmoniem 2022): Oort's utility and the charge that remains in the battery."""

    f: float = Field(default=0.25, ge=0, le=1, description="weight of Oort's utility; 1 - f is that of the battery")

    def start(self, seed: int) -> EaflSelector:
        return EaflSelector(seed, self)


class AskedLosses(Selector):
    """π_pow-d and π_cpow-d (Cho, Wang and Joshi, AISTATS 2022).

    A set of d candidates is drawn without replacement, a client k with the probability p_k, its share of all data.
    Each candidate evaluates the model that the round begins with, on all its training images or (cpow-d) on a random
    batch of them. The clients with the highest losses are picked; of equal ones those that were drawn first, so that
    ties are broken at random.

    Interpretation: clients that are not available are not drawn, and p_k is the share of the available clients' data.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"data_sizes", "local_losses"})

    def __init__(self, seed: int, spec: PowerOfChoice) -> None:
        self._seed = seed
        self._spec = spec

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        sizes = facts.data_sizes[available]
        wanted = min(len(available), max(cohort, round_up(self._spec.candidates * cohort)))
        draws = generator(self._seed, "selection", round)
        known = np.count_nonzero(sizes) >= wanted
        chances = sizes / sizes.sum() if known else None
        candidates = draws.choice(available, size=wanted, replace=False, p=chances)
        losses = self._losses(candidates, facts)
        return np.sort(candidates[np.argsort(-losses, kind="stable")[:cohort]])

    def _losses(self, candidates: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        """The loss of each candidate, in the order of the draw."""
        order = np.argsort(candidates)
        losses = np.empty(len(candidates))
        losses[order] = facts.local_losses(candidates[order], self._spec.images)
        return losses


class ReportedLosses(AskedLosses):
    """π_rpow-d: the candidates' losses are those that they reported with their last update, infinite before.

    Interpretation: the reported loss is the mean over the last local epoch; with one epoch it is the mean over all
        local steps, as in the paper.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"data_sizes", "loss"})

    def __init__(self, seed: int, spec: PowerOfChoice) -> None:
        super().__init__(seed, spec)
        self._reported: dict[int, float] = {}

    def observe(self, feedback: SelectionFeedback) -> None:
        self._reported.update(zip(feedback.client.tolist(), feedback.loss.tolist(), strict=True))

    def _losses(self, candidates: NDArray[np.int64], facts: Facts) -> NDArray[np.float64]:
        return np.array([self._reported.get(client, math.inf) for client in candidates.tolist()])


@SELECTORS.register("power_of_choice")
class PowerOfChoice(SelectorSpec):
    """Power-of-Choice (Cho, Wang and Joshi, AISTATS 2022): of some random candidates those with the highest loss."""

    candidates: float = Field(
        default=2.0, ge=1, le=1e6, description="number of candidates d, in multiples of the cohort"
    )
    losses: Literal["asked", "reported"] = Field(
        default="asked",
        description="asked: candidates evaluate the model (pow-d, cpow-d); reported: with their last update (rpow-d)",
    )
    images: int | None = Field(
        default=None,
        ge=1,
        description="images on which a candidate evaluates the model (cpow-d); all (pow-d) when null",
    )

    def start(self, seed: int) -> AskedLosses:
        if self.losses == "reported":
            if self.images is not None:
                raise UserError("reported losses are not evaluated on images", field="images")
            return ReportedLosses(seed, self)
        return AskedLosses(seed, self)
