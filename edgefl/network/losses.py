"""How losses slow a TCP connection down: its mean window in each part of its bytes, over drawn sequences of losses.

In each sequence the window follows NewReno (RFC 5681, RFC 6582) as a fluid. Slow start lasts until the first loss. A
loss is noticed after another window of packets, which cannot reduce the window again. Then the window is halved, to at
least two whole packets. It stays for the round trip of the recovery, and grows by a packet in each round trip until the
next loss. Time-outs are left out.

The mean of many sequences is needed because a single one, with a loss after each 1 / p packets, is far off in the first
parts: a loss in one of the first round trips leaves a window so small that it dominates the mean time.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgefl.randomness import generator

ENDS = tuple(2.0**power for power in range(-2, 5))
"""Where the parts of a connection end, in expected losses. After the last one its rate is steady."""

SEQUENCES = 4000
"""How many sequences of losses are drawn, the same ones for all connections."""

_Array = NDArray[np.float64]


def steady_window(loss: float, every: int = 1) -> float:
    """The mean packets per round trip after many losses (Mathis et al., CCR 27(3), 1997, equation 3).

    Args:
        loss: the probability that a packet is lost, above 0.
        every: packets for one acknowledgement.

    >>> round(steady_window(0.01), 2)
    12.25
    """
    return math.sqrt(1.5 / (every * loss))


@lru_cache(maxsize=1024)
def mean_windows(loss: float, every: int, first: float) -> tuple[float, ...]:
    """The mean packets per round trip in each part of a connection, as losses allow.

    The first part is sent in slow start alone: its value is infinite. The second one also has to make up for what
    losses cost in the first.

    Args:
        loss: the probability that a packet is lost, above 0.
        every: packets for one acknowledgement.
        first: the first window of slow start.

    >>> [round(window, 1) for window in mean_windows(0.01, 1, 10.0)]  # at most 25, 50, 100, ... packets
    [inf, 22.1, 27.7, 26.5, 21.1, 15.8, 12.7]
    """
    ends = np.array(ENDS) / loss
    trips = _round_trips(ends, loss, every, first)
    trips[0] = _slow_start(ends[0], every, first)
    return math.inf, *(float(window) for window in np.diff(ends) / np.diff(trips))


def _round_trips(ends: _Array, loss: float, every: int, first: float) -> _Array:
    """The mean round trips in which a connection sends these numbers of packets."""
    # Each draw deals these quantiles of the packets until a loss to the sequences at random.
    quantiles = -np.log1p(-(np.arange(SEQUENCES) + 0.5) / SEQUENCES) / loss
    draws = generator(0, "losses")
    until_loss = draws.permutation(quantiles)
    window = first + until_loss / every
    sent = until_loss + window
    trips = _slow_start(_before(ends, 0.0, sent), every, first).mean(axis=1)
    while sent.min() < ends[-1]:
        window = np.maximum(np.floor(window / 2.0), 2.0)
        until_loss = draws.permutation(quantiles)
        recovery = np.minimum(until_loss, window)
        trips += (_before(ends, sent, recovery) / window).mean(axis=1)
        sent += recovery
        growth = until_loss - recovery
        trips += _growth(_before(ends, sent, growth), every, window).mean(axis=1)
        sent += growth
        window += _growth(growth, every, window) / every
        trips += (_before(ends, sent, window) / window).mean(axis=1)
        sent += window
    return np.asarray(trips)


def _before(ends: _Array, sent: _Array | float, packets: _Array) -> _Array:
    """How many of these packets, which follow those that were sent, are sent before each end."""
    return np.clip(ends[:, None] - sent, 0.0, packets)


def _growth(packets: _Array, every: int, window: _Array) -> _Array:
    """The round trips in which a window that grows by a packet in each (or each second one) sends these packets."""
    return every * (np.sqrt(window**2 + 2.0 * packets / every) - window)


def _slow_start(packets: _Array, every: int, first: float) -> _Array:
    """The round trips of slow start in which these packets are sent."""
    return np.log1p(packets / (every * first)) / math.log1p(1.0 / every)
