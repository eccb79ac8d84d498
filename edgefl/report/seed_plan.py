"""How many seeds each pair of a run's methods needs, so that a difference of a given size is decided."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from edgefl.errors import UserError, one_line
from edgefl.record.metric import Metric
from edgefl.report.glance import seconds_of_a_seed
from edgefl.report.paired import compared, confidence_among, final_metrics
from edgefl.report.run_result import RunResult
from edgefl.report.statistics import POWER, seeds_needed, upper_deviation

_POINTS = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(pt|pts|points?|%)?\s*")


@dataclass(frozen=True)
class PairPlan:
    """The seeds that one pair of methods needs."""

    method: str  # the one with the better mean
    other: str  # the other one
    seeds: int  # the seeds that both have
    mean: float  # the mean of their differences, the first minus the other
    deviation: float  # the standard deviation of their differences
    needed: int | None  # seeds for this pair alone; None if more than MOST_SEEDS
    # the same with the upper 80 % confidence bound of the standard deviation, which few seeds do not show well
    cautious: int | None
    # seeds if a method is compared with all others, so that its comparisons share the level of 5 %
    among_all: int | None


@dataclass(frozen=True)
class SeedPlan:
    """The seeds that a run's comparisons need."""

    difference: float  # the size of the difference to decide, in the metric's unit (0.01: one point of accuracy)
    power: float  # the probability to decide it
    seeds: int  # the seeds of the run
    seconds_of_a_seed: float | None  # real seconds for one more seed of all methods; None if unknown
    pairs: tuple[PairPlan, ...]  # one for each pair of methods with two common seeds, those with the best means first
    unknown: tuple[tuple[str, str], ...]  # pairs with fewer than two common seeds

    @property
    def more(self) -> int | None:
        """The seeds to add so that all pairs have as many as they need; ``None`` if one needs too many."""
        missing = [pair.needed and max(0, pair.needed - pair.seeds) for pair in self.pairs]
        return max((each for each in missing if each is not None), default=0) if None not in missing else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "more": self.more}


def read_difference(text: str, metric: Metric) -> float:
    """A difference of a metric from a text: points for shares such as the accuracy, else a number.

    >>> from edgefl.record.metric import ACCURACY
    >>> read_difference("1pt", ACCURACY), read_difference("0.5 %", ACCURACY)
    (0.01, 0.005)
    """
    found = _POINTS.fullmatch(text)
    value = float(found[1]) if found else 0.0
    expected = "points, such as 1pt" if metric.share else f"a positive number in the unit of the {metric.word}"
    if found is None or bool(found[2]) != metric.share or not 0.0 < value < math.inf:
        raise UserError(f"expected a difference in {expected}, found {one_line(text)}", file="--seeds-for")
    if metric.share and value > 100:
        raise UserError(f"expected at most 100 points, found {one_line(text)}", file="--seeds-for")
    return value / 100 if metric.share else value


def seed_plan(
    run: RunResult, difference: float, *, power: float = POWER, methods: Sequence[str] | None = None
) -> SeedPlan:
    """The seeds that each pair of these methods, or of all, needs, from its differences by seed at the end of a run.

    The ``difference`` is in the metric's unit (0.01: one point of accuracy).
    """
    run.check_labels(methods or ())
    figures = {label: each for label, each in final_metrics(run).items() if not methods or label in methods}
    if len(figures) < 2:
        expected = f"expected two methods with {run.metric.word} to compare, found {len(figures)}"
        raise UserError(expected, file=str(run.path))
    highest = run.metric.better == "higher"
    means = compared(figures, highest=highest).means
    among, pairs, unknown = confidence_among(len(figures) - 1), [], []
    for one, other in combinations(means, 2):
        found = compared({one: figures[one], other: figures[other]}, highest=highest)
        values = found.differences[0].values
        if len(values) < 2:
            unknown.append((one, other))
            continue
        mean, spread = math.fsum(values) / len(values), found.differences[0].deviation
        cautious = upper_deviation(spread, len(values))
        alone, careful = (seeds_needed(difference, each, power=power) for each in (spread, cautious))
        shared, behind = seeds_needed(difference, spread, confidence=among, power=power), found.differences[0].label
        pairs.append(PairPlan(found.best, behind, len(values), mean, spread, alone, careful, shared))
    return SeedPlan(difference, power, len(run.seeds), seconds_of_a_seed(run), tuple(pairs), tuple(unknown))
