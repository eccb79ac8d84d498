"""Flows that cross the same shared links, advanced together by one virtual clock.

All flows of a bundle that are not limited by their own cap run at ``weight * level``. So one clock, advanced by the
level, gives the progress of each of them: a flow that joined at clock reading ``v`` with ``left`` bits ends at reading
``v + left / weight``. The flow needs no update when the level changes. (The idea is that of fair queueing: Demers,
Keshav and Shenker, SIGCOMM 1989.) Flows below the level run at their constant cap and end at a known time.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from edgefl.network.fairness import Outlook

_BUCKET = 128  # two levels of at most ~128 entries serve 16,000 flows with short sums at C speed


class DemandCurve:
    """The demand of a group of flows on one link, as a function of the level offered to each.

    A flow with cap ``c`` (bit/s) and weight ``w`` takes ``min(c, w * level)``. The sum over a group is a concave,
    piecewise-linear function of the level, evaluated in O(sqrt n): 10,000 flows can share one link without a visit to
    each flow at each event. Sums are never updated by subtraction, so past flows cause no drift.

    >>> curve = DemandCurve()
    >>> curve.add(threshold=4.0, flow=0, load=4.0, slope=1.0)
    >>> curve.add(threshold=10.0, flow=1, load=10.0, slope=1.0)
    >>> curve.at(5.0)           # flow 0 stands at its cap, flow 1 grows with the level
    (4.0, 1.0)
    """

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


_REBASE = 1024.0  # clock readings stay within this factor of what the flows have left: 13 digits of the largest


@dataclass(slots=True, eq=False)
class Stream:
    """The fluid part of one flow: its remaining bits and the limits of its rate."""

    flow: int
    path: tuple[int, ...]
    left: float  # bits left at since; meaningful while held
    own_weight: float  # the requested weight, before the weights of the channel and of TCP
    latency: float  # one-way seconds of its path
    limit: float  # its largest rate whatever its links, bit/s
    size: float  # bytes of the whole transfer
    outlook: Outlook
    most: float = math.inf  # for an allocator: its largest rate given the links that it alone uses, bit/s
    rate: float = math.inf  # the rate that the allocator gave last, bit/s
    weight: float = 1.0
    # the wireless channels that it uses, each with the link by which it uses the channel
    airs: tuple[tuple[int, int], ...] = ()
    # for each of them, the share of its time that a bit/s takes
    airtime: dict[int, float] = field(default_factory=dict)
    cap: float = math.inf  # the least capacity of the links that it alone uses, bit/s; infinite without such links
    since: float = math.nan
    held: bool = True  # its cap, not the bundle's level, determines its rate
    end: float = math.nan  # the time (held) or the clock reading (not held) at which it is complete
    bundle: Bundle | None = None


class Bundle:
    """The flows over one set of shared links; without any, all run at their caps. ``number`` orders bundles."""

    def __init__(self, links: tuple[int, ...], number: int, now: float) -> None:
        self.links, self.number = links, number
        self.level = 0.0 if links else math.inf
        self.streams: dict[int, Stream] = {}
        self.next_end = math.inf
        self._clock = 0.0
        self._clock_time = now
        self._furthest = 0.0
        self._curve = DemandCurve()
        self._airtime: dict[int, DemandCurve] = {}
        self._free: list[tuple[float, int]] = []
        self._held: list[tuple[float, int]] = []

    def demand(self, link: int, level: float) -> tuple[float, float]:
        return self._airtime.get(link, self._curve).at(level)

    def add(self, stream: Stream, now: float) -> None:
        self._advance(now)
        stream.bundle = self
        self.streams[stream.flow] = stream
        threshold = stream.cap / stream.weight
        if self.links:
            self._curve.add(threshold, stream.flow, stream.cap, stream.weight)
            for air, per_bit in stream.airtime.items():
                # A flow whose own link is down takes no air; 0 times its infinite cap would be NaN.
                load = stream.cap * per_bit if per_bit else 0.0
                curve = self._airtime.setdefault(air, DemandCurve())
                curve.add(threshold, stream.flow, load, stream.weight * per_bit)
        self._place(stream, now, held=threshold <= self.level)

    def remove(self, stream: Stream, now: float) -> None:
        """Remove a flow; ``stream.left`` is then its remaining bits."""
        stream.left = self.bits_left(stream, now)
        del self.streams[stream.flow]
        if self.links:
            threshold = stream.cap / stream.weight
            self._curve.remove(threshold, stream.flow)
            for air in stream.airtime:
                self._airtime[air].remove(threshold, stream.flow)
        stream.bundle = None

    def set_level(self, level: float, now: float) -> None:
        """Change the level; flows whose cap is between the two levels become held or not held."""
        self._advance(now)
        rising = level > self.level
        for flow in self._curve.between(self.level, level) if rising else self._curve.between(level, self.level):
            stream = self.streams[flow]
            stream.left = self.bits_left(stream, now)
            self._place(stream, now, held=rising)
        self.level = level

    def bits_left(self, stream: Stream, now: float) -> float:
        if stream.held:
            # A flow with an infinite cap is complete as soon as it is held.
            run = stream.cap * (now - stream.since) if now > stream.since else 0.0
            return max(stream.left - run, 0.0)
        return max((stream.end - self._reading(now)) * stream.weight, 0.0)

    def rate(self, stream: Stream) -> float:
        return stream.cap if stream.held else self.level * stream.weight

    def find_next_end(self) -> float:
        """When the first flow will be complete at the present rates; stored in ``next_end``."""
        end = self._first(self._held, held=True) if self._held else math.inf
        reading = self._first(self._free, held=False) if self._free else math.inf
        if reading < math.inf:
            ahead = reading - self._clock
            if ahead <= 0.0:
                end = min(end, self._clock_time)
            elif self.level > 0.0:
                end = min(end, self._clock_time + ahead / self.level)
        self.next_end = end
        return end

    def take_complete(self, until: float, now: float) -> list[Stream]:
        """Remove and return the flows that are complete at ``until`` (now, or a rounding error later)."""
        complete: list[Stream] = []
        while self.find_next_end() <= until:
            # The top of one of the two heaps is due; the other's top may also be due and is handled in the next pass.
            held_is_due = bool(self._held) and self._held[0][0] <= until
            _, flow = heapq.heappop(self._held if held_is_due else self._free)
            stream = self.streams[flow]
            self.remove(stream, now)
            complete.append(stream)
        return complete

    def _first(self, ends: list[tuple[float, int]], *, held: bool) -> float:
        # Entries stay in the heaps when a flow leaves or changes sides; the flow's own fields show which entry is
        # valid.
        while ends:
            end, flow = ends[0]
            stream = self.streams.get(flow)
            if stream is not None and stream.held is held and stream.end == end:
                return end
            heapq.heappop(ends)
        return math.inf

    def _place(self, stream: Stream, now: float, *, held: bool) -> None:
        stream.held = held
        if held:
            stream.since = now
            if stream.left <= 0.0:
                stream.end = now
            else:
                stream.end = now + stream.left / stream.cap if stream.cap > 0.0 else math.inf
            heapq.heappush(self._held, (stream.end, stream.flow))
        else:
            stream.end = self._clock + stream.left / stream.weight
            self._furthest = max(self._furthest, stream.end)
            heapq.heappush(self._free, (stream.end, stream.flow))

    def _reading(self, now: float) -> float:
        if self.level == math.inf:
            return self._clock  # no flow runs by the clock
        return self._clock + self.level * (now - self._clock_time)

    def _advance(self, now: float) -> None:
        if self.level < math.inf:
            self._clock += self.level * (now - self._clock_time)
        self._clock_time = now
        if not self._free:
            self._clock = self._furthest = 0.0
        elif self._clock > _REBASE * (self._furthest - self._clock):
            self._set_back_clock()

    def _set_back_clock(self) -> None:
        # An end is kept as a clock reading, to the precision of that reading. If a link is never idle, the clock would
        # grow until the last bits of a small flow were lost to rounding.
        free = [stream for stream in self.streams.values() if not stream.held]
        for stream in free:
            stream.end -= self._clock
        self._free = [(stream.end, stream.flow) for stream in free]
        heapq.heapify(self._free)
        self._furthest = max((end for end, _ in self._free), default=0.0)
        self._clock = 0.0
