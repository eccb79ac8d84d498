"""Tier-based selection: every cohort comes from one tier of clients of similar speed."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.errors import UserError
from edgefl.randomness import generator
from edgefl.scheduling.selection.base import SELECTORS, Facts, SeededSelector, SelectorSpec
from edgefl.scheduling.selection.uniform import sample
from edgefl.units import ShortSeconds, at_most

Numbers = NDArray[np.float64]


class StaticTiers(SeededSelector["TiFL"]):
    """TiFL with constant probabilities of the tiers (Chai et al., HPDC 2020, Sec. 4.2 and 4.3).

    Profiling gives each client's response latency; a client that exceeds the timeout never takes part. The other
    clients, fastest first, are divided into tiers. For each round one tier is drawn, and the cohort uniformly from it.

    Interpretations: the latency is the predicted seconds of a round at the first pick, and profiling has no cost; tiers
        have equal numbers of clients, as in the paper's experiments; a tier without available clients is not drawn; a
        tier with fewer available clients than the cohort gives all of them.
    """

    reads = frozenset({"foreseen", "data_sizes"})

    def __init__(self, seed: int, spec: TiFL) -> None:
        super().__init__(seed, spec)
        self._tiers: list[NDArray[np.int64]] | None = None
        self.probabilities: Numbers = np.array(spec.probabilities or [1 / spec.tiers] * spec.tiers)

    def pick(self, round: int, available: NDArray[np.int64], cohort: int, facts: Facts) -> NDArray[np.int64]:
        if self._tiers is None:
            self._tiers = self._profiled(facts)
        members = [np.intersect1d(tier, available) for tier in self._tiers]
        possible = np.array([len(each) > 0 for each in members])
        if not possible.any():
            return available[:0]
        draws = generator(self._seed, "selection", round)
        tier = self._draw(draws, members, possible, facts)
        return sample(draws, members[tier], cohort)

    def _profiled(self, facts: Facts) -> list[NDArray[np.int64]]:
        everyone = np.arange(len(facts.data_sizes), dtype=np.int64)
        foreseen = facts.foreseen(everyone)
        seconds = foreseen.download + foreseen.compute + foreseen.upload
        order = np.argsort(seconds, kind="stable")
        if self._spec.timeout is not None:
            order = order[[not at_most(self._spec.timeout, each) for each in seconds[order].tolist()]]
            if not len(order):
                fastest = float(seconds.min())
                message = f"selection 'tifl': no client is faster than the timeout; the fastest takes {fastest:g} s"
                raise UserError(message)
        return [np.sort(tier) for tier in np.array_split(everyone[order], self._spec.tiers)]

    def _draw(
        self, draws: np.random.Generator, members: list[NDArray[np.int64]], possible: NDArray[np.bool_], facts: Facts
    ) -> int:
        chances = np.where(possible, self.probabilities, 0.0)
        if not chances.sum() > 0:
            chances = possible.astype(np.float64)
        return int(draws.choice(len(chances), p=chances / chances.sum()))


class AdaptiveTiers(StaticTiers):
    """TiFL's adaptive selection of tiers (Chai et al., HPDC 2020, Alg. 2).

    Every ``interval`` rounds each tier's clients evaluate the model. If the present tier has not improved since the
    last evaluation, tiers with a worse result become more probable. Every pick of a tier costs it one of its credits; a
    tier without credits is not drawn.

    Interpretations: A tier is evaluated on the training data of its available clients, by the mean loss, which every
        task has, where the paper uses the accuracy on the tier's test data; ChangeProbs gives the i-th best of n tiers
        the probability i / (1 + … + n); once no tier that could be drawn has credits, they are ignored (in Alg. 2 the
        loop would not end).
    """

    reads = StaticTiers.reads | {"local_losses"}

    def __init__(self, seed: int, spec: TiFL) -> None:
        super().__init__(seed, spec)
        self._credits = None if spec.credits is None else np.array(spec.credits)
        self._losses: Numbers = np.full(spec.tiers, np.nan)
        self._current = 0
        self._picks = 0

    def _draw(
        self, draws: np.random.Generator, members: list[NDArray[np.int64]], possible: NDArray[np.bool_], facts: Facts
    ) -> int:
        if self._picks % self._spec.interval == 0:
            self._evaluate(members, facts)
        self._picks += 1
        if self._credits is not None and (possible & (self._credits > 0)).any():
            possible = possible & (self._credits > 0)
        self._current = super()._draw(draws, members, possible, facts)
        if self._credits is not None:
            self._credits[self._current] -= 1
        return self._current

    def _evaluate(self, members: list[NDArray[np.int64]], facts: Facts) -> None:
        asked = np.concatenate(members)
        losses = facts.local_losses(np.sort(asked), None)
        before, self._losses = self._losses, self._losses.copy()
        of_client = dict(zip(np.sort(asked).tolist(), losses.tolist(), strict=True))
        for tier, clients in enumerate(members):
            if len(clients):
                found = [of_client[client] for client in clients.tolist()]
                self._losses[tier] = np.average(found, weights=facts.data_sizes[clients])
        # A loss that did not fall is an accuracy that did not rise.
        if self._picks and self._losses[self._current] >= before[self._current]:
            self.probabilities = changed_probabilities(self._losses)


def changed_probabilities(losses: Numbers) -> Numbers:
    """ChangeProbs: the tier with the i-th lowest of n losses has the probability i / (1 + … + n).

    >>> changed_probabilities(np.array([0.2, 0.9, 0.4])).tolist()
    [0.16666666666666666, 0.5, 0.3333333333333333]
    """
    number = len(losses)
    ranks = np.empty(number)
    ranks[np.argsort(losses, kind="stable")] = np.arange(1, number + 1)
    return np.asarray(ranks / (number * (number + 1) / 2))


@SELECTORS.register("tifl")
class TiFL(SelectorSpec):
    """TiFL (Chai et al., HPDC 2020): each cohort from one tier of clients of similar speed."""

    tiers: int = Field(default=5, ge=1, le=1000, description="number of tiers")
    probabilities: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        default=None, description="constant probability of each tier, the fastest first; adaptive (Alg. 2) when null"
    )
    interval: int = Field(default=20, ge=1, description="rounds between evaluations of the tiers, if adaptive")
    credits: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None, description="how often each tier may be picked, if adaptive; as often as drawn when null"
    )
    timeout: ShortSeconds | None = Field(None, gt=0, description="clients that take longer never take part; null: all")

    def start(self, seed: int) -> StaticTiers:
        for field in ("probabilities", "credits"):
            given = getattr(self, field)
            if given is not None and len(given) != self.tiers:
                raise UserError(f"expected one value for each of {self.tiers} tiers, found {len(given)}", field=field)
        if self.probabilities is None:
            return AdaptiveTiers(seed, self)
        if self.credits is not None:
            raise UserError("constant probabilities use no credits", field="credits")
        if abs(sum(self.probabilities) - 1) > 1e-6:
            raise UserError(f"expected a sum of 1, found {sum(self.probabilities):g}", field="probabilities")
        return StaticTiers(seed, self)
