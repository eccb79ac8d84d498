"""Predicted and measured seconds side by side: pairs, bands of draws, the methods' order (Kendall's τ)."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from edgefl.errors import UserError
from edgefl.record.sensitivity import OWN, Condition, read_retimed
from edgefl.report.run_result import RunResult
from edgefl.wording import grouped

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
    """The seconds of one phase or round (``what``) in both runs."""

    place: Place
    what: str
    predicted: float
    measured: float

    @property
    def gap(self) -> float:
        """Measured minus predicted; 0 within rounding."""
        equal = math.isclose(self.predicted, self.measured, rel_tol=1e-9, abs_tol=_ROUNDING)
        return 0.0 if equal else self.measured - self.predicted

    @property
    def relative(self) -> float | None:
        """The same as a share of the predicted seconds; ``None`` if nothing was predicted."""
        return self.gap / self.predicted if self.predicted > _ROUNDING else None


def percent(share: float) -> str:
    """A share in percent, with its sign and two significant digits.

    >>> percent(0.01234), percent(-0.5), percent(0.0), percent(12.0)
    ('+1.2 %', '-50 %', '0 %', '+1200 %')
    """
    if not share:
        return "0 %"
    figure = 100.0 * share
    return f"{figure:+.0f} %" if abs(figure) >= 10.0 else f"{figure:+.2g} %"


class MethodPair(NamedTuple):
    """Two methods, the one that is predicted to be faster first."""

    first: str
    second: str
    predicted: float  # the seconds by which it is faster; negative if it was slower
    measured: float
    gap: float  # the larger of the two methods' gaps between prediction and measurement, in seconds
    clear: bool  # whether the predicted difference is larger than the gap
    kept: bool  # whether the measurement has the predicted order


class Order(NamedTuple):
    """The order of the methods by one figure, as every two of them."""

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
    for both in combinations(predicted, 2):
        first, second = sorted(both, key=predicted.__getitem__)
        faster, was_faster = (_less(each[second], each[first]) for each in (predicted, measured))
        gap = max(abs(_less(measured[each], predicted[each])) for each in both)
        pairs.append(MethodPair(first, second, faster, was_faster, gap, faster > gap, faster > 0 and was_faster > 0))
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
    signs = np.sign(np.array(differences).reshape(-1, 2))
    ranked = np.count_nonzero(signs, axis=0)
    return float(signs.prod(axis=1).sum() / math.sqrt(ranked.prod())) if ranked.all() else None


TOLERANCE = 0.01
"""By this share a round may leave its band: emulated rounds with fair queues, which draw nothing, differ as much."""


class Band(NamedTuple):
    """The lowest and the highest seconds of a round over the draws, and their median."""

    low: float
    high: float
    middle: float

    def contains(self, seconds: float) -> bool:
        """Whether a measured round is in the band, within the tolerance."""
        return self.low * (1.0 - TOLERANCE) <= seconds <= self.high * (1.0 + TOLERANCE)

    def data(self, seconds: float) -> dict[str, object]:
        """The band and a measured round, for JSON."""
        return {"low": self.low, "high": self.high, "inside": self.contains(seconds)}


class Bands(NamedTuple):
    """The bands of a prediction by method, seed and round, and the medians of the seconds at the end of each round.

    ``draws`` counts the prediction's own; ``missing`` are sentences about what has no band.
    """

    draws: int
    rounds: dict[tuple[str, int, int], Band]
    ends: dict[tuple[str, int, int], float]
    missing: list[str]

    def of(self, gap: Gap) -> Band | None:
        """The band of a round; ``None`` where there is none."""
        return self.rounds.get((gap.place.method, gap.place.seed, gap.place.round))


def has_one_queue(run: RunResult) -> bool:
    """Whether transfers of a run share one queue (``queue: fifo``)."""
    return bool(run.option("network.transport.queue") == "fifo")


def read_bands(predicted: RunResult) -> Bands:
    """The bands of a run, from its ``sensitivity.parquet``; none with fair queues."""
    if not has_one_queue(predicted):
        return Bands(0, {}, {}, [])
    none = "No band over draws of the shares in queues"
    hint = f"edgefl replay {predicted.given} --sensitivity computes it, if arrival times do not decide what is trained"
    if not predicted.paths.sensitivity.is_file():
        why = hint if predicted.trained else "nothing was trained, and this run is no prediction of edgefl emulate"
        return Bands(0, {}, {}, [f"{none}: {why}."])
    try:
        found = read_retimed(predicted.path)
    except UserError as error:
        return Bands(0, {}, {}, [f"{none}: {error}."])
    own = [row for row in found.rows.to_pylist() if Condition(row["devices"], row["bandwidth"]) == OWN]
    ends = grouped(((row["label"], row["seed"], row["draw"]), row["seconds"]) for row in own)
    rounds = [
        ((label, seed, number), began, ended)
        for (label, seed, _), each in ends.items()
        for number, (began, ended) in enumerate(pairwise([0.0, *each]), 1)
    ]
    draws = len({draw for _, _, draw in ends})
    missing = [f"{label}: no band over draws of the shares: {why}." for label, why in found.refused.items()]
    if draws < 2:
        return Bands(0, {}, {}, missing or [f"{none}: {hint}."])
    seconds, moments = grouped((of, end - start) for of, start, end in rounds), grouped((of, e) for of, _, e in rounds)
    bands = {place: Band(min(each), max(each), median(each)) for place, each in seconds.items()}
    return Bands(draws, bands, {place: median(each) for place, each in moments.items()}, missing)
