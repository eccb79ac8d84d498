"""How many seeds each pair of a run's methods needs, so that a difference of a given size is decided."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise
from statistics import median
from typing import Any

from edgefl.errors import UserError, nearest, one_line
from edgefl.record.metric import Metric
from edgefl.report.contrast import SHOWN
from edgefl.report.paired import Comparison, Difference, compare_methods, compared, confidence_among, final_metrics
from edgefl.report.quantities import unit_for
from edgefl.report.run_record import RunRecord
from edgefl.report.statistics import MOST_SEEDS, POWER, seeds_needed, upper_deviation
from edgefl.wording import listed

_RIGHT_AWAY = 0.01
"""Files that are closer together, in seconds, were copied."""


def seconds_of_a_seed(run: RunRecord) -> float | None:
    """The real seconds that all methods of a run take with one more seed; ``None`` if the files do not show it.

    Runs follow one another, seed by seed, and the last file of each is its table of rounds. So the time between two
    tables is that of a run; the median over the seeds excludes interruptions. The files of a copied directory were
    written in another order, or all at once.
    """
    files = [run.paths.of(label, seed).rounds for seed, label in _in_order(run)]
    try:
        written = [file.stat().st_mtime for file in files]
    except OSError:
        return None
    taken: dict[str, list[float]] = {label: [] for label in run.labels}
    for (earlier, later), (_, label) in zip(pairwise(written), _in_order(run)[1:], strict=True):
        if later - earlier < _RIGHT_AWAY:
            return None
        taken[label].append(later - earlier)
    return sum(map(median, taken.values())) if all(taken.values()) else None


def _in_order(run: RunRecord) -> list[tuple[int, str]]:
    """Seed and label of each run, in the order of execution."""
    return [
        (results[number].seed, label)
        for number in range(max(map(len, run.results.values())))
        for label, results in run.results.items()
        if number < len(results)
    ]


def more_seeds_sentence(run: RunRecord) -> str | None:
    """How many more seeds would separate the method with the best metric from those tied with it.

    The true differences are taken to be the present means, with the present spread; so the numbers are rough.

    Returns:
        A sentence; ``None`` if no methods with two common seeds are tied, or the tied ones are equal with every seed.
    """
    standing = compare_methods(run)
    if standing is None:
        return None
    unequal = [each for each in standing.tied if len(each.values) > 1 and any(each.values)]
    more = {each.label: _more(each) for each in unequal}
    clauses = _clauses(standing, {label: seeds for label, seeds in more.items() if seeds}, seconds_of_a_seed(run))
    if never := [label for label, seeds in more.items() if seeds is None]:
        clauses.append(f"more than {MOST_SEEDS} seeds are needed to separate {standing.best} from {listed(never)}")
    if not clauses:
        return None
    condition = "if the true differences are the present means" if len(more) > 1 else "if the present mean is true"
    text = "; ".join(clauses)
    return f"{text[:1].upper()}{text[1:]} (t test by seed, power {100 * POWER:.0f} %, {condition})."


def _more(each: Difference) -> int | None:
    mean = math.fsum(each.values) / len(each.values)
    needed = seeds_needed(mean, each.deviation, confidence=each.confidence)
    return needed and max(1, needed - len(each.values))


def _clauses(standing: Comparison, more: dict[str, int], seconds: float | None) -> list[str]:
    """The numbers of seeds, the smallest first; at most as many as a sentence has differences."""
    found: list[str] = []
    for label, seeds in sorted(more.items(), key=lambda item: item[1])[:SHOWN]:
        amount = f"{seeds} more {'seed' if seeds == 1 else 'seeds'}" if not found else str(seeds)
        cost = f" ({about(seeds * seconds)})" if seconds is not None else ""
        found.append(f"{amount}{cost} {'would separate ' + standing.best + ' ' if not found else ''}from {label}")
    return [f"about {listed(found)}"] if found else []


def about(seconds: float) -> str:
    """Real seconds with two digits.

    >>> about(178.3), about(11.2), about(0.04)
    ('3 min', '11 s', '1 s')
    """
    least = max(1.0, seconds)
    unit = unit_for([least], "seconds")
    return f"{float(f'{least / unit.scale:.2g}'):g} {unit.symbol}"


_POINTS = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(pt|pts|points?|%)?\s*")


@dataclass(frozen=True)
class PairPlan:
    """The seeds that one pair of methods needs.

    Attributes:
        method: the one with the better mean.
        other: the other one.
        seeds: the seeds that both have.
        mean: the mean of their differences, the first minus the other.
        deviation: the standard deviation of their differences.
        needed: seeds for this pair alone; ``None`` if more than :data:`~edgefl.report.statistics.MOST_SEEDS`.
        cautious: the same with the upper 80 % confidence bound of the standard deviation, which few seeds do not show
            well.
        among_all: seeds if a method is compared with all others, so that its comparisons share the level of 5 %.
    """

    method: str
    other: str
    seeds: int
    mean: float
    deviation: float
    needed: int | None
    cautious: int | None
    among_all: int | None


@dataclass(frozen=True)
class SeedPlan:
    """The seeds that a run's comparisons need.

    Attributes:
        difference: the size of the difference to decide, in the metric's unit (0.01: one point of accuracy).
        power: the probability to decide it.
        seeds: the seeds of the run.
        seconds_of_a_seed: real seconds for one more seed of all methods; ``None`` if unknown.
        pairs: one for each pair of methods with two common seeds, those with the best means first.
        unknown: pairs with fewer than two common seeds.
    """

    difference: float
    power: float
    seeds: int
    seconds_of_a_seed: float | None
    pairs: tuple[PairPlan, ...]
    unknown: tuple[tuple[str, str], ...]

    @property
    def more(self) -> int | None:
        """The seeds to add so that all pairs have as many as they need; ``None`` if one needs too many."""
        missing = [pair.needed and max(0, pair.needed - pair.seeds) for pair in self.pairs]
        return max((each for each in missing if each is not None), default=0) if None not in missing else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "unknown": [list(pair) for pair in self.unknown], "more": self.more}


def read_difference(text: str, metric: Metric) -> float:
    """A difference of a metric from a text: points for shares such as the accuracy, else a number.

    Raises:
        UserError: the text is not a positive difference of this metric.

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
    run: RunRecord, difference: float, *, power: float = POWER, methods: Sequence[str] | None = None
) -> SeedPlan:
    """The seeds that each pair of methods needs, from the spread of its differences by seed at the end of a run.

    Args:
        run: a finished run.
        difference: the size of the difference to decide, in the metric's unit.
        power: the probability to decide it.
        methods: labels of the methods to compare; all if not given.

    Raises:
        UserError: the run has no such method, or fewer than two have a metric.
    """
    for label in methods or ():
        if label not in run.results:
            raise UserError(f"the run has no method '{label}'; {nearest(label, run.labels)}", file=str(run.path))
    figures = {label: each for label, each in final_metrics(run).items() if not methods or label in methods}
    if len(figures) < 2:
        raise UserError(
            f"expected two methods with {run.metric.word} to compare, found {len(figures)}", file=str(run.path)
        )
    means = compared(figures, highest=run.metric.better == "higher").means
    among, pairs, unknown = confidence_among(len(figures) - 1), [], []
    for one, other in combinations(means, 2):
        found = compared({one: figures[one], other: figures[other]}, highest=run.metric.better == "higher")
        values = found.differences[0].values
        if len(values) < 2:
            unknown.append((one, other))
            continue
        mean, spread = math.fsum(values) / len(values), found.differences[0].deviation
        pairs.append(
            PairPlan(
                found.best,
                found.differences[0].label,
                len(values),
                mean,
                spread,
                seeds_needed(difference, spread, power=power),
                seeds_needed(difference, upper_deviation(spread, len(values)), power=power),
                seeds_needed(difference, spread, confidence=among, power=power),
            )
        )
    return SeedPlan(difference, power, len(run.seeds), seconds_of_a_seed(run), tuple(pairs), tuple(unknown))
