"""A certified lower bound on the makespan of a round, for any number of clients."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgefl.scheduling.optimum.choices import Choices, Numbers

WINDOWS = 24
"""Windows of time at which each of the server's links is looked at; any number gives a valid bound."""

PRECISION = 1e-4
"""Relative width of the interval at which the bisection ends; its lower end is returned."""


def least_seconds(choices: Choices, utility: float) -> float:
    """A number of seconds below which no round reaches a utility, whatever its cohort and its rates are.

    In a round of T seconds only choices with ``alone`` <= T are possible. A download must end, and an upload cannot
    begin, before certain moments: those with the other phases alone on their links. So a part of each upload must
    flow in the window [a, T], and a part of each download in [0, b], at any rates that its own link allows. T is
    impossible if in some window even the cohort with the smallest such parts needs more than the server's link can
    carry. The smallest parts are those of the knapsack's linear relaxation: choices by their part for each utility, the
    last one taken as a fraction (Dantzig, Operations Research 5, 1957). T is found by bisection. Every T below the
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
    alone = np.sort(usable.alone)
    low = _alone_bound(usable, utility)
    if _possible(usable, utility, low * (1 + 1e-12)):
        return low
    high = float(alone[-1]) + float((usable.down_seconds + usable.up_seconds).sum())
    while high - low > PRECISION * low:
        middle = (low + high) / 2
        if _possible(usable, utility, middle):
            high = middle
        else:
            low = middle
    return low


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


def _possible(choices: Choices, utility: float, seconds: float) -> bool:
    """Whether no window shows that a round of this many seconds is impossible."""
    able = choices.only(choices.alone <= seconds)
    if not len(able.client):
        return False
    down, up = able.down_seconds, able.up_seconds
    earliest = able.start + down + able.between
    latest = seconds - up - able.between
    if math.isfinite(able.server_up):
        begins = _some(earliest)
        parts = (able.up_bits / able.server_up) * _inside(begins[:, None] - earliest, up)
        if (_least(parts, able.utility, utility) > (seconds - begins) * (1 + 1e-12)).any():
            return False
    if math.isfinite(able.server_down):
        ends, first = _some(latest), able.start.min()
        parts = (able.down_bits / able.server_down) * _inside(latest - np.maximum(ends[:, None], able.start), down)
        if (_least(parts, able.utility, utility) > (ends - first) * (1 + 1e-12)).any():
            return False
    return True


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
