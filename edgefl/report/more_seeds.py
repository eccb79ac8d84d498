"""What it takes to separate tied methods: ``About 5 more seeds (3 min) would separate fedadc from fedavg``."""

from __future__ import annotations

import math

from edgefl.report.computing_time import seconds_of_a_seed
from edgefl.report.contrast import SHOWN
from edgefl.report.differences import compare_methods
from edgefl.report.paired import Comparison, Difference
from edgefl.report.quantities import unit_for
from edgefl.report.run_record import RunRecord
from edgefl.report.sample_size import MOST_SEEDS, POWER, seeds_needed
from edgefl.wording import listed


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
