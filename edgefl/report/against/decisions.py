"""The decisions in which two runs of one scenario differ.

Some decisions depend on times: whom a selector picks, how many blocks a client receives, whose update arrives before a
deadline. From the first one that differs, the runs train different models on different clients, and their rounds are
no longer the same rounds.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from edgefl.report.course import Course

Kind = Literal["cohort", "blocks", "aggregated clients"]


class Difference(NamedTuple):
    """A kind of decision and the rounds in which it differs, in order."""

    kind: Kind
    rounds: tuple[int, ...]


class Decisions(NamedTuple):
    """How far two runs made the same decisions.

    Attributes:
        differences: the kinds of decisions that differ.
        rounds: the rounds that both runs completed.
        same: the first of these rounds, up to the first decision that differs.
    """

    differences: tuple[Difference, ...]
    rounds: int
    same: int


def compare_decisions(predicted: Course, measured: Course) -> Decisions:
    """Compare the cohorts, the numbers of blocks and the aggregated clients of two courses, round by round."""
    rounds = min(len(predicted.rounds), len(measured.rounds))
    numbers = range(1, rounds + 1)
    both = (predicted, measured)
    facts: dict[Kind, list[dict[int, object]]] = {
        "cohort": [{number: sorted(course.cohorts.get(number, ())) for number in numbers} for course in both],
        "blocks": [{number: course.alphas.get(number, {}) for number in numbers} for course in both],
        "aggregated clients": [{each.number: sorted(each.aggregated) for each in course.rounds} for course in both],
    }
    found = {kind: tuple(n for n in numbers if one.get(n) != other.get(n)) for kind, (one, other) in facts.items()}
    first = min((rounds_of[0] for rounds_of in found.values() if rounds_of), default=rounds + 1)
    return Decisions(tuple(Difference(kind, each) for kind, each in found.items() if each), rounds, first - 1)
