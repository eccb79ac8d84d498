"""Predicted and measured seconds side by side, and the figures of many such pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from edgefl.report.against.causes import Cause

_ROUNDING = 1e-9
"""Seconds that rounding of long times may cause."""


class Place(NamedTuple):
    """Where something was measured; ``client`` is ``None`` for the whole round, -1 for the server and its cells."""

    method: str
    seed: int
    round: int
    client: int | None = None

    def words(self, *, method: bool = True, seed: bool = True) -> str:
        """The place in words, from the largest to the smallest.

        >>> Place("fedavg", 0, 3, 7).words(), Place("fedavg", 0, 3).words(method=False, seed=False)
        ('fedavg, seed 0, round 3, client 7', 'round 3')
        """
        parts = [self.method] * method + [f"seed {self.seed}"] * seed + [f"round {self.round}"]
        if self.client is not None:
            parts.append(f"client {self.client}" if self.client >= 0 else "a cell")
        return ", ".join(parts)


class Gap(NamedTuple):
    """The seconds of one phase or round in both runs.

    Attributes:
        what: the phase, or ``round``.
        cause: the probable cause of a phase's gap.
    """

    place: Place
    what: str
    predicted: float
    measured: float
    cause: Cause | None = None

    @property
    def seconds(self) -> float:
        """Measured minus predicted; 0 within rounding."""
        equal = math.isclose(self.predicted, self.measured, rel_tol=1e-9, abs_tol=_ROUNDING)
        return 0.0 if equal else self.measured - self.predicted

    @property
    def relative(self) -> float | None:
        """The same as a share of the predicted seconds; ``None`` if nothing was predicted."""
        return self.seconds / self.predicted if self.predicted > _ROUNDING else None


class Gaps(NamedTuple):
    """Many pairs of seconds of the same kind.

    Attributes:
        predicted, measured, seconds: medians of the pairs' figures.
        relative: the median of the relative gaps; ``None`` if nothing was predicted in some pair.
        within: half of the pairs have a relative gap of at most this size.
        worst: the pair with the largest relative gap; with the most seconds where relative gaps are missing.
        number: how many pairs there are.
    """

    predicted: float
    measured: float
    seconds: float
    relative: float | None
    within: float | None
    worst: Gap
    number: int


def gaps_of(pairs: Sequence[Gap]) -> Gaps:
    """The figures of at least one pair."""
    shares = [pair.relative for pair in pairs if pair.relative is not None]
    known = len(shares) == len(pairs)

    def size(pair: Gap) -> float:
        return abs(pair.relative if known and pair.relative is not None else pair.seconds)

    return Gaps(
        predicted=median(pair.predicted for pair in pairs),
        measured=median(pair.measured for pair in pairs),
        seconds=median(pair.seconds for pair in pairs),
        relative=median(shares) if known else None,
        within=median(map(abs, shares)) if known else None,
        worst=max(pairs, key=size),
        number=len(pairs),
    )


def largest(pairs: Sequence[Gap], count: int) -> list[Gap]:
    """The pairs with the most seconds between prediction and measurement, the largest first."""
    return sorted(pairs, key=lambda pair: -abs(pair.seconds))[:count]


def by_cause(pairs: Sequence[Gap]) -> dict[Cause, float]:
    """The seconds of all gaps by cause, without their signs, the largest first."""
    seconds: dict[Cause, list[float]] = {}
    for pair in pairs:
        if pair.cause is not None:
            seconds.setdefault(pair.cause, []).append(abs(pair.seconds))
    sums = {cause: math.fsum(each) for cause, each in seconds.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def percent(share: float) -> str:
    """A share in percent, with its sign and two significant digits.

    >>> percent(0.01234), percent(-0.5), percent(0.0), percent(12.0)
    ('+1.2 %', '-50 %', '0 %', '+1200 %')
    """
    if not share:
        return "0 %"
    figure = 100.0 * share
    return f"{figure:+.0f} %" if abs(figure) >= 10.0 else f"{figure:+.2g} %"
