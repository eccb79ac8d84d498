"""The demand of a group of flows on a link when each of them is offered the same level.

A flow with cap ``c`` (bit/s) and weight ``w`` takes ``min(c, w * level)``. The sum over a group is a concave,
piecewise-linear function of the level. :class:`DemandCurve` evaluates it in O(sqrt n) while flows start and end, so
10,000 flows can share one link without a visit to each flow at each event.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

_BUCKET = 128  # two levels of at most ~128 entries serve 16,000 flows with short sums at C speed


class DemandCurve:
    """The demand of a group of flows on one link, as a function of the level offered to each.

    Sums are computed from the entries each time (never updated by subtraction), so past flows cause no drift.

    >>> curve = DemandCurve()
    >>> curve.add(threshold=4.0, flow=0, load=4.0, slope=1.0)
    >>> curve.add(threshold=10.0, flow=1, load=10.0, slope=1.0)
    >>> curve.at(5.0)           # flow 0 stands at its cap, flow 1 grows with the level
    (4.0, 1.0)
    """

    __slots__ = (
        "_high",
        "_highs",
        "_keys",
        "_load_sums",
        "_loads",
        "_low",
        "_piece",
        "_slope_sums",
        "_slopes",
        "_thresholds",
    )

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf
        self._piece = (0.0, 0.0)
        self._keys: list[list[tuple[float, int]]] = []
        self._thresholds: list[list[float]] = []
        self._loads: list[list[float]] = []
        self._slopes: list[list[float]] = []
        self._highs: list[tuple[float, int]] = []
        self._load_sums: list[float] = []
        self._slope_sums: list[float] = []

    def add(self, threshold: float, flow: int, load: float, slope: float) -> None:
        """Add a flow: below ``threshold`` its demand is ``slope * level``, above it ``load``."""
        key = (threshold, flow)
        self._low, self._high = math.inf, -math.inf  # the last piece is no longer valid
        if not self._keys:
            self._insert_bucket(0, [key], [load], [slope])
            return
        bucket = min(bisect_left(self._highs, key), len(self._keys) - 1)
        keys = self._keys[bucket]
        at = bisect_left(keys, key)
        keys.insert(at, key)
        self._thresholds[bucket].insert(at, threshold)
        self._loads[bucket].insert(at, load)
        self._slopes[bucket].insert(at, slope)
        if len(keys) > _BUCKET:
            self._split(bucket)
        else:
            self._sum(bucket)

    def remove(self, threshold: float, flow: int) -> None:
        """Remove the flow that was added with this threshold."""
        key = (threshold, flow)
        self._low, self._high = math.inf, -math.inf  # the last piece is no longer valid
        bucket = bisect_left(self._highs, key)
        keys = self._keys[bucket]
        at = bisect_left(keys, key)
        for column in (keys, self._thresholds[bucket], self._loads[bucket], self._slopes[bucket]):
            del column[at]
        if keys:
            self._sum(bucket)
            return
        for columns in (self._keys, self._thresholds, self._loads, self._slopes, self._highs):
            del columns[bucket]
        del self._load_sums[bucket], self._slope_sums[bucket]

    def at(self, level: float) -> tuple[float, float]:
        """``(load, slope)``: the demand near this level is ``load + slope * level``."""
        # Levels change little between events: the piece of the last call is usually still valid.
        if self._low <= level < self._high:
            return self._piece
        buckets = len(self._keys)
        bucket, load, slope, low, high = 0, 0.0, 0.0, -math.inf, math.inf
        if buckets > 1:
            bucket = bisect_right(self._highs, (level, _LAST))
            load = sum(self._load_sums[:bucket])
            slope = sum(self._slope_sums[bucket + 1 :])
            if bucket:
                low = self._highs[bucket - 1][0]
        if bucket < buckets:
            thresholds = self._thresholds[bucket]
            at = bisect_right(thresholds, level)
            load += sum(self._loads[bucket][:at])
            slope += sum(self._slopes[bucket][at:])
            if at < len(thresholds):
                high = thresholds[at]
            if at:
                low = thresholds[at - 1]
        self._low, self._high, self._piece = low, high, (load, slope)
        return self._piece

    def between(self, low: float, high: float) -> list[int]:
        """The flows with ``low < threshold <= high``, by threshold and then by number."""
        flows: list[int] = []
        if self._low <= low and high < self._high:
            return flows
        for bucket in range(bisect_right(self._highs, (low, _LAST)), len(self._keys)):
            thresholds = self._thresholds[bucket]
            start, stop = bisect_right(thresholds, low), bisect_right(thresholds, high)
            flows.extend(flow for _, flow in self._keys[bucket][start:stop])
            if stop < len(thresholds):
                break
        return flows

    def _sum(self, bucket: int) -> None:
        self._highs[bucket] = self._keys[bucket][-1]
        if len(self._keys) > 1:  # the only bucket is never used as a whole
            self._load_sums[bucket] = sum(self._loads[bucket])
            self._slope_sums[bucket] = sum(self._slopes[bucket])

    def _split(self, bucket: int) -> None:
        half = len(self._keys[bucket]) // 2
        keys, loads, slopes = self._keys[bucket][half:], self._loads[bucket][half:], self._slopes[bucket][half:]
        del self._keys[bucket][half:], self._thresholds[bucket][half:]
        del self._loads[bucket][half:], self._slopes[bucket][half:]
        self._insert_bucket(bucket + 1, keys, loads, slopes)
        self._sum(bucket)

    def _insert_bucket(
        self, bucket: int, keys: list[tuple[float, int]], loads: list[float], slopes: list[float]
    ) -> None:
        self._keys.insert(bucket, keys)
        self._thresholds.insert(bucket, [threshold for threshold, _ in keys])
        self._loads.insert(bucket, loads)
        self._slopes.insert(bucket, slopes)
        self._highs.insert(bucket, keys[-1])
        self._load_sums.insert(bucket, sum(loads))
        self._slope_sums.insert(bucket, sum(slopes))


_LAST = 2**63  # above every flow number
