"""A certified lower bound on the makespan of a round, for any number of clients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefl.scheduling.optimum.choices import Choices, Numbers

WINDOWS = 24
"""Windows of time at which each of the server's links is looked at; any number gives a valid bound."""

PRECISION = 1e-4
"""Relative width of the interval at which the search ends; its lower end is returned."""


class Point(NamedTuple):
    """A number of seconds of a round, and by how much the worst window is too short for it: above 0, impossible."""

    seconds: float
    lacking: float


def least_seconds(choices: Choices, utility: float) -> float:
    """A number of seconds below which no round reaches a utility, whatever its cohort and its rates are.

    In a round of T seconds only choices with ``alone`` <= T are possible. A download must end, and an upload cannot
    begin, before certain moments: those with the other phases alone on their links. So a part of each upload must
    flow in the window [a, T], and a part of each download in [0, b], at any rates that its own link allows. T is
    impossible if in some window even the cohort with the smallest such parts needs more than the server's link can
    carry. The smallest parts are those of the knapsack's linear relaxation: choices by their part for each utility, the
    last one taken as a fraction (Dantzig, Operations Research 5, 1957). T is found by interpolation. Every T below the
    optimum may be possible in this relaxation, but no T that is impossible in it is possible in a round, so the result
    is never above the optimum.

    Returns:
        The bound; infinite if all choices together do not reach the utility.

    >>> ones, rate = np.ones(4), np.full(4, 2.0)
    >>> choices = Choices(np.arange(4), ones, rate, 0 * ones, ones, ones, rate, ones, ones, server_up=1.0)
    >>> round(least_seconds(choices, 3), 3)  # 0.5 s down, 1 s between, 3 bits at 1 bit/s
    4.5
    """
    if utility <= 0:
        return 0.0
    usable = choices.only(np.isfinite(choices.alone))
    if usable.most_utility() < utility * (1 - 1e-12):
        return math.inf
    shortest = _alone_bound(usable, utility)
    low = high = _point(usable, utility, shortest * (1 + 1e-12))
    if high.lacking <= 0:
        return shortest
    while high.lacking > 0:
        # With so many more seconds, the same windows would be long enough for the same choices.
        low, high = high, _point(usable, utility, high.seconds + max(high.lacking, PRECISION * high.seconds))
    return _last_impossible(usable, utility, low, high)


def _last_impossible(choices: Choices, utility: float, low: Point, high: Point) -> float:
    """The impossible end of a narrow interval that contains the change to the possible.

    The lacking seconds are interpolated (regula falsi); an end that stays counts half (Dowell and Jarratt's Illinois
    method, BIT 11, 1971).

    Args:
        choices: the possible participations.
        utility: the required utility.
        low: an impossible number of seconds.
        high: a larger one that no window shows to be impossible.
    """
    weights = [low.lacking, -high.lacking]
    while high.seconds - low.seconds > PRECISION * low.seconds:
        share = weights[0] / sum(weights) if 0 < sum(weights) < math.inf else 0.5
        # The interval must shrink, wherever the line crosses zero.
        middle = _point(choices, utility, low.seconds + (high.seconds - low.seconds) * min(max(share, 0.02), 0.98))
        if middle.lacking > 0:
            low, weights = middle, [middle.lacking, weights[1] / 2]
        else:
            high, weights = middle, [weights[0] / 2, -middle.lacking]
    # In so narrow an interval the seconds that are lacking are mostly linear: this is just below the zero.
    zero = (high.seconds - low.seconds) * low.lacking / (low.lacking - high.lacking)
    last = _point(choices, utility, low.seconds + zero * (1 - 1e-6))
    return last.seconds if last.lacking > 0 else low.seconds


def _alone_bound(choices: Choices, utility: float) -> float:
    """The shortest time in which enough clients could each finish alone on their links."""
    best: dict[int, float] = {}
    reached = 0.0
    for place in np.argsort(choices.alone, kind="stable").tolist():
        client, gain = int(choices.client[place]), float(choices.utility[place])
        reached += max(0.0, gain - best.get(client, 0.0))
        best[client] = max(gain, best.get(client, 0.0))
        if reached >= utility * (1 - 1e-12):
            return float(choices.alone[place])
    return math.inf


def _point(choices: Choices, utility: float, seconds: float) -> Point:
    """What is lacking in a round of this many seconds."""
    able = choices.only(choices.alone <= seconds)
    down, up = able.down_seconds, able.up_seconds
    earliest = able.start + down + able.between
    latest = seconds - up - able.between
    lacking = -math.inf
    if math.isfinite(able.server_up):
        begins = _some(earliest)
        parts = (able.up_bits / able.server_up) * _inside(begins[:, None] - earliest, up)
        needed, length = _least(parts, able.utility, utility), seconds - begins
        lacking = max(lacking, float((needed - length * (1 + 1e-12)).max()))
    if math.isfinite(able.server_down):
        ends, first = _some(latest), able.start.min()
        parts = (able.down_bits / able.server_down) * _inside(latest - np.maximum(ends[:, None], able.start), down)
        needed, length = _least(parts, able.utility, utility), ends - first
        lacking = max(lacking, float((needed - length * (1 + 1e-12)).max()))
    return Point(seconds, lacking)


def _inside(outside: Numbers, alone: Numbers) -> Numbers:
    """The part of a transfer that cannot flow in as many seconds outside of a window."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(alone > 0, np.clip(1.0 - np.maximum(outside, 0.0) / alone, 0.0, 1.0), 0.0)


def _some(moments: Numbers) -> Numbers:
    """At most as many moments as there are windows, spread over those given."""
    ordered = np.sort(moments)
    if len(ordered) <= WINDOWS:
        return ordered
    return ordered[np.linspace(0, len(ordered) - 1, WINDOWS).astype(np.int64)]


def _least(parts: Numbers, utility: NDArray[np.float64], required: float) -> Numbers:
    """For each row, the least sum of parts of choices with the required utility, the last one taken as a fraction."""
    if (utility == utility[0]).all():
        # Equal utilities: a number of choices, of which the smallest are taken.
        count = min(math.ceil(required / utility[0] - 1e-9), parts.shape[1])
        return np.asarray(np.partition(parts, count - 1, axis=1)[:, :count].sum(axis=1))
    order = np.argsort(parts / utility, axis=1, kind="stable")
    gains = utility[order]
    before = np.cumsum(gains, axis=1) - gains
    share = np.clip((required - before) / gains, 0.0, 1.0)
    return np.asarray((np.take_along_axis(parts, order, axis=1) * share).sum(axis=1))
