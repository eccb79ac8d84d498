"""A certified lower bound on the makespan of a round, for any number of clients with known costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

WINDOWS = 24
"""Windows of time at which each of the server's links is looked at; any number gives a valid bound."""

PRECISION = 1e-4
"""Relative width of the interval at which the search ends; its lower end is returned."""


@dataclass(frozen=True)
class ClientCosts:
    """What one round costs each client that could take part; arrays have one entry for each client.

    A client downloads, then spends ``between``, then uploads. Its rate never exceeds its own limit, and the rates of
    all downloads (uploads) together never exceed the server's capacity. Rates may change at any time.
    """

    # down_bits, up_bits: what is transferred
    down_bits: Numbers
    # down_rate, up_rate: the highest rates, bit/s; 0 if the link is down
    down_rate: Numbers
    start: Numbers  # seconds from the beginning of the round until the download may begin
    between: Numbers  # seconds from the end of the download until the upload may begin: computing, and latency
    up_bits: Numbers
    up_rate: Numbers
    # server_down, server_up: capacity of the server's link in each direction, bit/s; infinite if it is no limit
    server_down: float = math.inf
    server_up: float = math.inf

    @property
    def down_seconds(self) -> Numbers:
        """The download's seconds if no other client transfers."""
        return _seconds(self.down_bits, np.minimum(self.down_rate, self.server_down))

    @property
    def up_seconds(self) -> Numbers:
        """The upload's seconds if no other client transfers."""
        return _seconds(self.up_bits, np.minimum(self.up_rate, self.server_up))

    @property
    def alone(self) -> Numbers:
        """The seconds of the whole participation if no other client transfers; infinite where a link is down."""
        return self.start + self.down_seconds + self.between + self.up_seconds

    def only(self, kept: NDArray[np.bool_]) -> ClientCosts:
        arrays = {name: value[kept] for name, value in vars(self).items() if not name.startswith("server")}
        return replace(self, **arrays)


def _seconds(bits: Numbers, rate: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bits > 0, bits / rate, 0.0)


class Point(NamedTuple):
    """A number of seconds of a round, and by how much the worst window is too short for it: above 0, impossible."""

    seconds: float
    lacking: float


def least_seconds(costs: ClientCosts, updates: int) -> float:
    """A number of seconds below which no round returns as many updates, whatever its cohort and its rates are.

    It is infinite if there are fewer clients.

    In a round of T seconds only clients with ``alone`` <= T can take part. A download must end, and an upload cannot
    begin, before certain moments: those with the other phases alone on their links. So a part of each upload must
    flow in the window [a, T], and a part of each download in [0, b], at any rates that its own link allows. T is
    impossible if in some window even the clients with the smallest such parts need more than the server's link can
    carry. T is found by interpolation. Every T below the optimum may be possible in this relaxation, but no T that is
    impossible in it is possible in a round, so the result is never above the optimum.

    >>> ones, rate = np.ones(4), np.full(4, 2.0)
    >>> costs = ClientCosts(ones, rate, 0 * ones, ones, ones, rate, server_up=1.0)
    >>> round(least_seconds(costs, 3), 3)  # 0.5 s down, 1 s between, 3 bits at 1 bit/s
    4.5
    """
    usable = costs.only(np.isfinite(costs.alone))
    if updates <= 0:
        return 0.0
    if len(usable.alone) < updates:
        return math.inf
    shortest = float(np.partition(usable.alone, updates - 1)[updates - 1])
    low = high = _point(usable, updates, shortest * (1 + 1e-12))
    if high.lacking <= 0:
        return shortest
    while high.lacking > 0:
        # With so many more seconds, the same windows would be long enough for the same clients.
        low, high = high, _point(usable, updates, high.seconds + max(high.lacking, PRECISION * high.seconds))
    return _last_impossible(usable, updates, low, high)


def _last_impossible(costs: ClientCosts, updates: int, low: Point, high: Point) -> float:
    """The impossible end of a narrow interval that contains the change to the possible.

    ``low`` is impossible; no window shows that ``high`` is. The lacking seconds are interpolated (regula falsi); an end
    that stays counts half (Dowell and Jarratt's Illinois method, BIT 11, 1971).
    """
    weights = [low.lacking, -high.lacking]
    while high.seconds - low.seconds > PRECISION * low.seconds:
        share = weights[0] / sum(weights) if 0 < sum(weights) < math.inf else 0.5
        # The interval must shrink, wherever the line crosses zero.
        middle = _point(costs, updates, low.seconds + (high.seconds - low.seconds) * min(max(share, 0.02), 0.98))
        if middle.lacking > 0:
            low, weights = middle, [middle.lacking, weights[1] / 2]
        else:
            high, weights = middle, [weights[0] / 2, -middle.lacking]
    # In so narrow an interval the seconds that are lacking are mostly linear: this is just below the zero.
    zero = (high.seconds - low.seconds) * low.lacking / (low.lacking - high.lacking)
    last = _point(costs, updates, low.seconds + zero * (1 - 1e-6))
    return last.seconds if last.lacking > 0 else low.seconds


def _point(costs: ClientCosts, updates: int, seconds: float) -> Point:
    able = costs.only(costs.alone <= seconds)
    down, up = able.down_seconds, able.up_seconds
    earliest = able.start + down + able.between
    latest = seconds - up - able.between
    lacking = -math.inf
    if math.isfinite(able.server_up):
        begins = _some(earliest)
        parts = (able.up_bits / able.server_up) * _inside(begins[:, None] - earliest, up)
        lacking = max(lacking, _lacking(parts, updates, seconds - begins))
    if math.isfinite(able.server_down):
        ends, first = _some(latest), able.start.min()
        parts = (able.down_bits / able.server_down) * _inside(latest - np.maximum(ends[:, None], able.start), down)
        lacking = max(lacking, _lacking(parts, updates, ends - first))
    return Point(seconds, lacking)


def _inside(outside: Numbers, alone: Numbers) -> Numbers:
    """The part of a transfer that cannot flow in as many seconds outside of a window."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(alone > 0, np.clip(1.0 - np.maximum(outside, 0.0) / alone, 0.0, 1.0), 0.0)


def _some(moments: Numbers) -> Numbers:
    ordered = np.sort(moments)
    if len(ordered) <= WINDOWS:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, WINDOWS).astype(np.int64)]


def _lacking(parts: Numbers, updates: int, length: Numbers) -> float:
    needed = np.partition(parts, updates - 1, axis=1)[:, :updates].sum(axis=1)
    return float((needed - length * (1 + 1e-12)).max())
