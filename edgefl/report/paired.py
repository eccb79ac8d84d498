"""Methods compared by seed: the rule for winners and ties in all reports.

All methods of a run have the same partitions, cohorts, batches and links for a seed. What a seed changes for all
methods alike cancels in their difference, so methods are compared by their differences for each seed:

1. The best method has the best mean. It is compared with each other method: the mean of the differences and Student's t
   interval, as for one sample.
2. All these comparisons together have the level of 5 % (S. Holm, "A simple sequentially rejective multiple test
   procedure", Scandinavian Journal of Statistics 6, 1979): with m methods to compare, intervals have the confidence
   1 - 0.05/m. Methods whose interval excludes zero are separated; the others are compared again, with their number
   as m, until no further method is separated.
3. The others are *tied* with the best method: their interval includes zero.

The level holds for comparisons with a method that was chosen in advance. The best method is chosen by its mean, so of
five equally good methods one is separated wrongly in about 8 % of runs. In simulated runs with five equal methods, one
was named the only winner in 0.2 % at most; of two equal methods, one is named in about 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import stdev
from typing import NamedTuple

from edgefl.record.summary import SeedResult
from edgefl.report.grid import Cell, Grid, Head
from edgefl.report.quantities import unit_for
from edgefl.report.run_record import RunRecord
from edgefl.report.statistics import CONFIDENCE, Estimate, mean_interval, t_factor

BySeed = Mapping[int, float]
"""A method's figure for each seed."""


class Difference(NamedTuple):
    """The best method's figure minus another method's, by seed.

    Attributes:
        label: the other method.
        values: one difference for each seed that both methods have.
        interval: their mean with the interval that decides; the half width is infinite if the methods have fewer than
            two seeds in common, and ``None`` if both have only one, the same.
        confidence: that of the interval, at least 95 %.
    """

    label: str
    values: tuple[float, ...]
    interval: Estimate
    confidence: float

    @property
    def tied(self) -> bool:
        """Whether the interval includes zero; with a single seed, whether both figures are equal."""
        return self.interval.low <= 0.0 <= self.interval.high

    @property
    def deviation(self) -> float:
        """The standard deviation of the values, of which there are at least two.

        >>> Difference("b", (1.0, 2.0, 3.0), mean_interval([1.0, 2.0, 3.0]), 0.95).deviation
        1.0
        """
        return stdev(self.values)

    @property
    def p(self) -> float | None:
        """The two-sided p-value of Student's t test, not adjusted; ``None`` with fewer than two seeds in common.

        >>> Difference("b", (1.0, 2.0, 3.0), mean_interval([1.0, 2.0, 3.0]), 0.95).p
        0.0741...
        """
        if len(self.values) < 2:
            return None
        from scipy.special import stdtr

        if not self.interval.half_width:  # all differences are equal
            return float(self.interval.mean == 0.0)
        error = self.interval.half_width / t_factor(len(self.values), self.confidence)
        return 2.0 * float(stdtr(len(self.values) - 1, -abs(self.interval.mean) / error))

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
    """The best method compared with all others.

    Attributes:
        means: each method's mean with its own interval, from best to worst mean.
        differences: of the best method from each other one, in the same order.
    """

    means: dict[str, Estimate]
    differences: tuple[Difference, ...]

    @property
    def best(self) -> str:
        """The method with the best mean."""
        return next(iter(self.means))

    @property
    def tied(self) -> list[Difference]:
        """The differences from the methods that are tied with the best one."""
        return [each for each in self.differences if each.tied]

    @property
    def separated(self) -> list[Difference]:
        """The differences from the methods that the best one is better than."""
        return [each for each in self.differences if not each.tied]

    @property
    def leaders(self) -> list[str]:
        """The best method and those tied with it, from best to worst mean."""
        return [self.best, *(each.label for each in self.tied)]

    @property
    def others(self) -> list[str]:
        """The methods that the best one is better than, from best to worst mean."""
        return [each.label for each in self.separated]

    @property
    def one_seed(self) -> bool:
        """Whether all methods have the same single seed, so that differences have no interval."""
        return all(each.interval.half_width is None for each in self.differences)


def confidence_among(comparisons: int) -> float:
    """The confidence of each of several intervals that share the level of 5 %.

    >>> confidence_among(1), confidence_among(5)
    (0.95, 0.99)
    """
    return 1 - (1 - CONFIDENCE) / comparisons


def compared(figures: Mapping[str, BySeed], *, highest: bool) -> Comparison:
    """Compare the best method with all others by seed.

    Args:
        figures: each method's figure for each of its seeds.
        highest: whether higher figures are better.

    Raises:
        ValueError: there is no method, or a method without a seed.

    >>> found = compared({"a": {0: 0.90, 1: 0.80, 2: 0.85}, "b": {0: 0.94, 1: 0.85, 2: 0.90}}, highest=True)
    >>> found.leaders, round(found.differences[0].interval.mean, 3), round(found.differences[0].interval.half_width, 3)
    (['b'], 0.047, 0.014)
    """
    if not figures:
        raise ValueError("a comparison needs at least one method")
    means = {label: mean_interval(list(by_seed.values())) for label, by_seed in figures.items()}
    ranked = sorted(means, key=lambda label: means[label].mean, reverse=highest)
    best, *others = ranked
    remaining = {label: _differences(figures[best], figures[label]) for label in others}
    found: dict[str, Difference] = {}
    while remaining:
        confidence = confidence_among(len(remaining))
        tested = {
            label: Difference(label, values, _interval(figures[best], figures[label], values, confidence), confidence)
            for label, values in remaining.items()
        }
        separated = [label for label, each in tested.items() if not each.tied]
        found |= tested
        if not separated:
            break
        remaining = {label: values for label, values in remaining.items() if label not in separated}
    return Comparison({label: means[label] for label in ranked}, tuple(found[label] for label in others))


def _differences(one: BySeed, other: BySeed) -> tuple[float, ...]:
    """By seed; figures that differ only by rounding are equal."""
    return tuple(
        0.0 if math.isclose(one[seed], other[seed], rel_tol=1e-12) else one[seed] - other[seed]
        for seed in one
        if seed in other
    )


def _interval(one: BySeed, other: BySeed, values: tuple[float, ...], confidence: float) -> Estimate:
    if len(values) > 1 or (one.keys() == other.keys() and values):
        return mean_interval(values, confidence)
    return Estimate(math.fsum(values), math.inf, len(values))


def figures_by_seed(run: RunRecord, figure: Callable[[SeedResult], float | None]) -> dict[str, BySeed]:
    """A figure by method and seed; methods without the figure in any seed are omitted."""
    found = {label: {each.seed: figure(each) for each in results} for label, results in run.results.items()}
    known = {label: {seed: value for seed, value in each.items() if value is not None} for label, each in found.items()}
    return {label: each for label, each in known.items() if each and len(each) == len(found[label])}


def final_metrics(run: RunRecord) -> dict[str, BySeed]:
    """The metric of the last model, or its moving average if targets refer to it; untrained models are omitted."""

    def metric_of(result: SeedResult) -> float | None:
        if result.trained_nothing:
            return None
        return result.metric.ema if run.smoothed else result.metric.final

    return figures_by_seed(run, metric_of)


def compare_methods(run: RunRecord) -> Comparison | None:
    """The methods of a run compared by seed, by the metric of their last models.

    Returns:
        The comparison of the best method with the others; ``None`` if fewer than two methods have a metric.
    """
    found = final_metrics(run)
    return compared(found, highest=run.metric.better == "higher") if len(found) > 1 else None


def difference_data(run: RunRecord) -> list[dict[str, object]]:
    """For JSON: the best method minus each other one, in the metric's unit; empty with fewer than two methods."""
    standing = compare_methods(run)
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
            "tied": each.tied,
        }
        for each in standing.differences
    ]


def difference_grid(run: RunRecord) -> Grid | None:
    """The differences as a table; ``None`` if no two methods have two seeds in common."""
    standing = compare_methods(run)
    if standing is None or all(len(each.values) < 2 for each in standing.differences):
        return None
    unit = unit_for([each.interval.mean for each in standing.differences], run.metric.dimension)
    heads = [
        Head("compared with", text=True),
        Head("difference", "points" if run.metric.share else unit.symbol),
        Head("confidence", "%"),
        Head("p", "Student's t"),
        Head("p", "sign flips"),
        Head("seeds"),
    ]
    return Grid(heads, [_cells(each, run) for each in standing.differences], _notes(standing, run))


def _cells(each: Difference, run: RunRecord) -> list[Cell]:
    unit = unit_for([each.interval.mean], run.metric.dimension)
    if len(each.values) < 2:
        return [Cell(each.label), *[Cell("–")] * 4, Cell(str(len(each.values)))]
    spread = f"±{unit.interval(each.interval.half_width, each.interval.mean)}" if each.interval.half_width else ""
    ps = [Cell("–") if p is None else Cell(f"{p:.2g}") for p in (each.p, each.sign_flip_p)]
    confidence = Cell(f"{100 * each.confidence:.4g}")
    return [
        Cell(each.label),
        Cell(unit.number(each.interval.mean), spread),
        confidence,
        *ps,
        Cell(str(len(each.values))),
    ]


def _notes(standing: Comparison, run: RunRecord) -> list[str]:
    name = f"smoothed {run.metric.word}" if run.smoothed else run.metric.word
    lines = [
        f"The {name} of {standing.best} minus that of each other method at the end, mean over the seeds. The intervals "
        "have the level of 5 % for all comparisons together (Holm); the p-values are not adjusted."
    ]
    if any(len(each.values) < 6 for each in standing.differences):
        lines.append(
            "The test with sign flips does not assume a normal distribution. With n seeds its p-value is at least "
            "2/2ⁿ, so it can confirm a difference at the 5 % level from six seeds on."
        )
    return lines
