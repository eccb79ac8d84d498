"""Methods compared by seed: the rule for winners in all reports.

All methods of a run have the same partitions, cohorts, batches and links for a seed. What a seed changes for all
methods alike cancels in their difference, so methods are compared by their differences for each seed:

1. The best method has the best mean. It is compared with each other method: the mean of the differences and its
   interval. Half an interval is the larger of Student's t for one sample and 1.96 √((v₁ + v₂) / seeds), where v is the
   variance of one model's figure that seeds need not show: p (1 - p) / n for an accuracy of n labels, which
   ``summary.json`` counts; that of its last changes for another metric or without the count; that of a round's length
   for times (:mod:`edgefl.report.run_result`). So equal differences are not certain, and more seeds can
   decide. The claim is about this test set.
2. Student's intervals of all these comparisons together have the level of 5 % (S. Holm, "A simple sequentially
   rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979): with m methods to compare,
   intervals have the confidence 1 - 0.05/m. Methods whose interval excludes zero are separated; the others are
   compared again, with their number as m, until no further method is separated.
3. The others are *not decided*: their interval includes zero, or fewer than three seeds are common.

The level holds for comparisons with a method that was chosen in advance. The best method is chosen by its mean, so of
five equally good methods one is separated wrongly in about 8 % of runs. In simulated runs with five equal methods, one
was named the only winner in 0.2 % at most; of two equal methods, one is named in about 5 %.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import stdev
from typing import NamedTuple

from edgefl.record.summary import SeedResult
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import CONFIDENCE, MOST_SEEDS, Estimate, mean_interval, seeds_needed

BySeed = Mapping[int, float]
"""A method's figure for each seed."""


FEWEST_SEEDS = 3
"""With fewer common seeds nothing is decided."""

LIMIT = 1.96
"""The half width of a 95 % interval of a normal distribution, in standard deviations."""


class Difference(NamedTuple):
    """The best method's figure minus another method's, by seed."""

    label: str  # the other method
    values: tuple[float, ...]  # one difference for each seed that both methods have
    # their mean with the interval that decides; the half width is infinite if the methods have fewer than two seeds
    # in common, and None if both have only one, the same
    interval: Estimate
    confidence: float  # that of the interval, at least 95 %
    unseen: float = 0.0  # the standard deviation of one difference that seeds need not show

    @property
    def decided(self) -> bool:
        """Whether the best method is better with at least 95 % confidence."""
        return len(self.values) >= FEWEST_SEEDS and not self.interval.low <= 0.0 <= self.interval.high

    @property
    def deviation(self) -> float:
        """The standard deviation of the values, of which there are at least two.

        >>> Difference("b", (1.0, 2.0, 3.0), mean_interval([1.0, 2.0, 3.0]), 0.95).deviation
        1.0
        """
        return stdev(self.values)

    @property
    def p(self) -> float | None:
        """The two-sided p-value of Student's t test, not adjusted; ``None`` if the values show no spread.

        >>> Difference("b", (1.0, 2.0, 3.0), mean_interval([1.0, 2.0, 3.0]), 0.95).p
        0.0741...
        """
        if len(self.values) < 2 or not self.deviation:
            return None
        from scipy.special import stdtr

        error = self.deviation / math.sqrt(len(self.values))
        return 2.0 * float(stdtr(len(self.values) - 1, -abs(self.interval.mean) / error))

    @property
    def more_seeds(self) -> int | None:
        """Seeds to add until this difference is decided, if it and its spread stay as they are.

        ``None``: the difference is zero, or more than :data:`~edgefl.report.statistics.MOST_SEEDS` are needed.

        >>> Difference("b", (1.0, 1.0), mean_interval([1.0, 1.0]), 0.95, unseen=1.0).more_seeds
        2
        """
        mean, seeds = abs(self.interval.mean), len(self.values)
        if not seeds or not mean:
            return None
        least = max(FEWEST_SEEDS, math.floor((LIMIT * self.unseen / mean) ** 2) + 1)
        if seeds > 1:
            needed = seeds_needed(mean, self.deviation, confidence=self.confidence)
            if needed is None:
                return None
            least = max(least, needed)
        return None if least > MOST_SEEDS else max(1, least - seeds)

    @property
    def sign_flip_p(self) -> float | None:
        """The two-sided p-value of the sign-flip test; ``None`` with fewer than two seeds in common.

        The test assumes only that the differences are symmetric around zero if the methods are equally good. It is
        exact up to 13 seeds; with more, 9999 random flips are drawn. With n seeds it cannot be below 2/2ⁿ, so it can
        decide at the 5 % level from six seeds on.

        >>> Difference("b", (1.0, 2.0, 3.0), mean_interval([1.0, 2.0, 3.0]), 0.95).sign_flip_p
        0.25
        """
        if len(self.values) < 2:
            return None
        import numpy as np
        from scipy.stats import permutation_test

        tested = permutation_test(
            (np.asarray(self.values),), np.mean, permutation_type="samples", n_resamples=9999, rng=0
        )
        return min(1.0, float(tested.pvalue))


@dataclass(frozen=True)
class Comparison:
    """The best method compared with all others."""

    means: dict[str, Estimate]  # each method's mean with its own interval, from best to worst mean
    differences: tuple[Difference, ...]  # of the best method from each other one, in the same order

    @property
    def best(self) -> str:
        """The method with the best mean."""
        return next(iter(self.means))

    @property
    def undecided(self) -> list[Difference]:
        """The differences from the methods that are not decided against the best one."""
        return [each for each in self.differences if not each.decided]

    @property
    def leaders(self) -> list[str]:
        """The best method and those not decided against it, from best to worst mean."""
        return [self.best, *(each.label for each in self.undecided)]

    @property
    def seeds(self) -> int:
        """The number of seeds that the best method has."""
        return self.means[self.best].seeds


def confidence_among(comparisons: int) -> float:
    """The confidence of each of several intervals that share the level of 5 %.

    >>> confidence_among(1), confidence_among(5)
    (0.95, 0.99)
    """
    return 1 - (1 - CONFIDENCE) / comparisons


def compared(figures: Mapping[str, BySeed], *, highest: bool, unseen: Mapping[str, float] | None = None) -> Comparison:
    """Compare the best method with all others, by each one's figure for each of its seeds.

    ``unseen`` is the standard deviation of each method's figure of one seed that seeds need not show.

    >>> found = compared({"a": {0: 0.90, 1: 0.80, 2: 0.85}, "b": {0: 0.94, 1: 0.85, 2: 0.90}}, highest=True)
    >>> found.leaders, round(found.differences[0].interval.mean, 3), round(found.differences[0].interval.half_width, 3)
    (['b'], 0.047, 0.014)
    """
    means = {label: mean_interval(list(by_seed.values())) for label, by_seed in figures.items()}
    ranked = sorted(means, key=lambda label: means[label].mean, reverse=highest)
    best, *others = ranked
    remaining = {label: _differences(figures[best], figures[label]) for label in others}
    found: dict[str, Difference] = {}
    hidden = {label: math.hypot(*((unseen or {}).get(each, 0.0) for each in (best, label))) for label in others}
    while remaining:
        confidence = confidence_among(len(remaining))
        for label, values in remaining.items():
            interval = _interval(figures[best], figures[label], values, confidence, hidden[label])
            found[label] = Difference(label, values, interval, confidence, hidden[label])
        left = {label: values for label, values in remaining.items() if not found[label].decided}
        if len(left) == len(remaining):
            break
        remaining = left
    return Comparison({label: means[label] for label in ranked}, tuple(found[label] for label in others))


def _differences(one: BySeed, other: BySeed) -> tuple[float, ...]:
    """By seed; figures that differ only by rounding are equal."""
    return tuple(
        0.0 if math.isclose(one[seed], other[seed], rel_tol=1e-12) else one[seed] - other[seed]
        for seed in one
        if seed in other
    )


def _interval(one: BySeed, other: BySeed, values: tuple[float, ...], confidence: float, unseen: float) -> Estimate:
    if len(values) > 1:
        found = mean_interval(values, confidence)
        least = LIMIT * unseen / math.sqrt(len(values))
        return found._replace(half_width=max(found.half_width or 0.0, least))
    if one.keys() == other.keys() and values:
        return mean_interval(values)
    return Estimate(math.fsum(values), math.inf, len(values))


def figures_by_seed(
    run: RunResult, figure: Callable[[SeedResult], float | None], *, whole: bool = False
) -> dict[str, BySeed]:
    """A figure by method and seed, of the moment or of the whole run; without baselines and methods without it."""
    compared = [each for each in (run.results if whole else run.moments).items() if each[0] not in run.baselines]
    found = {label: {each.seed: figure(each) for each in results} for label, results in compared}
    known = {label: {seed: value for seed, value in each.items() if value is not None} for label, each in found.items()}
    return {label: each for label, each in known.items() if each and len(each) == len(found[label])}


def final_metrics(run: RunResult) -> dict[str, BySeed]:
    """The metric, or its moving average if targets refer to it; untrained models are omitted."""

    def metric_of(result: SeedResult) -> float | None:
        if result.trained_nothing:
            return None
        return result.metric.ema if run.smoothed else result.metric.final

    return figures_by_seed(run, metric_of)


def compare_metric(run: RunResult) -> Comparison | None:
    """The methods of a run compared by seed, by their metric; ``None`` if no method has one."""
    found = final_metrics(run)
    return compared(found, highest=run.metric.better == "higher", unseen=run.scatter) if found else None


def seconds_to(value: float, result: SeedResult) -> float | None:
    """When a seed reached a target; ``None`` if it did not."""
    return next((found.seconds for found in result.targets if found.value == value and found.reached), None)


def compare_target(run: RunResult, value: float) -> Comparison | None:
    """The methods that reach a target with every seed, by the seconds to it; ``None`` if no method does.

    A target is reached at the end of a round, so one seed's seconds are uncertain by a round's length over √12.
    """
    found = figures_by_seed(run, lambda result: seconds_to(value, result))
    rounds = {label: max(each.seconds / max(1, each.rounds) for each in run.moments[label]) for label in found}
    unseen = {label: seconds / math.sqrt(12) for label, seconds in rounds.items()}
    return compared(found, highest=False, unseen=unseen) if found else None


def difference_data(run: RunResult) -> list[dict[str, object]]:
    """For JSON: the best method minus each other one, in the metric's unit; empty with fewer than two methods."""
    standing = compare_metric(run)
    if standing is None:
        return []
    return [
        {
            "method": standing.best,
            "other": each.label,
            "seeds": len(each.values),
            "mean": each.interval.mean if each.values else None,
            "half_width": each.interval.half_width if len(each.values) > 1 else None,
            "confidence": each.confidence,
            "p": each.p,
            "sign_flip_p": each.sign_flip_p,
            "decided": each.decided,
        }
        for each in standing.differences
    ]
