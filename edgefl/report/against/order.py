"""Whether the methods finish in the predicted order: Kendall's rank correlation τ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple


class MethodPair(NamedTuple):
    """Two methods, the one that is predicted to be faster first.

    Attributes:
        predicted: the seconds by which it is predicted to be faster; 0 for a tie.
        measured: the seconds by which it was faster; negative if it was slower.
        gap: the larger of the two methods' gaps between prediction and measurement, in seconds.
    """

    first: str
    second: str
    predicted: float
    measured: float
    gap: float

    @property
    def clear(self) -> bool:
        """Whether the predicted difference is larger than the gap."""
        return self.predicted > self.gap

    @property
    def kept(self) -> bool:
        """Whether the measurement has the predicted order."""
        return self.predicted > 0 and self.measured > 0


class Order(NamedTuple):
    """The order of the methods by one figure.

    Attributes:
        figure: what they are ordered by.
        pairs: every two methods.
    """

    figure: str
    pairs: tuple[MethodPair, ...]

    @property
    def tau(self) -> float | None:
        """Kendall's τ-b over all pairs; ``None`` if all methods are tied in one of the runs."""
        return kendall([(pair.predicted, pair.measured) for pair in self.pairs])

    @property
    def clear_tau(self) -> float | None:
        """The same over the pairs whose predicted difference is larger than their gap."""
        return kendall([(pair.predicted, pair.measured) for pair in self.pairs if pair.clear])


def order_of(figure: str, predicted: Mapping[str, float], measured: Mapping[str, float]) -> Order:
    """The order by seconds; a method that never reaches the figure's target has infinitely many."""
    pairs = []
    for one, other in combinations(predicted, 2):
        first, second = (one, other) if predicted[one] <= predicted[other] else (other, one)
        gap = max(abs(_less(measured[each], predicted[each])) for each in (one, other))
        pairs.append(
            MethodPair(
                first,
                second,
                _less(predicted[second], predicted[first]),
                _less(measured[second], measured[first]),
                gap,
            )
        )
    return Order(figure, tuple(pairs))


def _less(one: float, other: float) -> float:
    """One minus the other; 0 if both are infinite."""
    return 0.0 if one == other else one - other


def kendall(differences: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's τ-b from the differences of each pair in the two rankings; ``None`` without a pair to rank.

    Source: M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).

    >>> kendall([(1.0, 2.0), (3.0, 1.0), (2.0, -1.0)])
    0.333...
    """
    signs = [(_sign(one), _sign(other)) for one, other in differences]
    ranked = [sum(sign[place] != 0 for sign in signs) for place in (0, 1)]
    if not all(ranked):
        return None
    return sum(one * other for one, other in signs) / math.sqrt(ranked[0] * ranked[1])


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
