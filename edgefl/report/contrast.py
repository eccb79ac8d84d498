"""Sentences about the differences of methods: ``1.9 ± 1.8 points above fedavg and 9.5 ± 3.0 points above fedbr``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from edgefl.report.paired import Comparison, Difference
from edgefl.report.quantities import unit_for
from edgefl.wording import listed

SHOWN = 4
"""How many differences a sentence contains; the other methods are only named."""


class Relation(NamedTuple):
    """How a sentence relates the best method to another one.

    Attributes:
        dimension: a dimension of :mod:`edgefl.report.quantities`.
        word: the word between the difference and the other method, such as ``above``.
        highest: whether higher figures are better.
        verb: the word before the difference.
    """

    dimension: str
    word: str
    highest: bool = False
    verb: str = "is"


EARLIER = Relation("seconds", "before")
"""The relation of times to a target."""


def ahead(comparison: Comparison, relation: Relation) -> str:
    """The differences from the methods that the best one is better than."""
    return _differences(comparison.separated, relation)


def tie(comparison: Comparison, relation: Relation) -> str:
    """A clause about the differences from tied methods, and another about those from the separated ones."""
    known = _known(comparison.tied)
    clause = f"{comparison.best} {relation.verb} {_differences(known, relation)}"
    unequal = sum(any(each.values) for each in known)
    if unequal:
        clause += f" (the {'interval includes' if unequal == 1 else 'intervals include'} zero)"
    return clause if not comparison.separated else f"{clause}; it {relation.verb} {ahead(comparison, relation)}"


def tied(comparison: Comparison) -> list[str]:
    """The best method and those tied with it, without those that have too few seeds in common with it."""
    return [comparison.best, *(each.label for each in _known(comparison.tied))]


def unknown(comparison: Comparison) -> str:
    """A clause about methods that have too few seeds in common with the best one; empty if there are none."""
    without = [each.label for each in comparison.tied if not math.isfinite(each.interval.high)]
    if not without:
        return ""
    return f"; {comparison.best} cannot be compared with {listed(without)}: they have fewer than two seeds in common"


def rule(comparisons: int) -> str:
    """The note that is needed to read the differences of sentences that compare up to this many pairs."""
    level = "with their 95 % interval (Student's t)"
    if comparisons > 1:
        level = "with Student's t intervals that have the level of 5 % for all comparisons of a sentence (Holm)"
    return f"Differences are means over the seeds that both methods have, {level}."


def _known(found: Sequence[Difference]) -> list[Difference]:
    return [each for each in found if math.isfinite(each.interval.high)]


def _differences(found: Sequence[Difference], relation: Relation) -> str:
    shown = [_difference(each, relation) for each in found[:SHOWN]]
    if rest := [each.label for each in found[SHOWN:]]:
        shown.append(f"{'close to' if found[0].tied else relation.word} {listed(rest)}")
    return listed(shown)


def _difference(each: Difference, relation: Relation) -> str:
    """One difference; positive if the best method is better."""
    if not any(each.values):
        return f"equal to {each.label} with every seed"
    sign = 1 if relation.highest else -1
    mean, half_width = sign * each.interval.mean, each.interval.half_width
    unit = unit_for([mean], relation.dimension)
    symbol = "points" if relation.dimension == "fraction" else unit.symbol
    spread = f"± {unit.interval(half_width, mean)}" if half_width else ""
    return " ".join(filter(None, (unit.number(mean), spread, symbol, relation.word, each.label)))
