"""Which flows share which links, and at what rates: the state of the network, without a clock."""

import heapq
import itertools
import math
from array import array
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from edgefl.network.bundle import Bundle, Stream
from edgefl.network.fairness import Allocator, Claim, Outlook, Progress, allotted, fair_levels, link_level
from edgefl.network.topology import Topology
from edgefl.network.transport import Transport


class _BusyLink:
    __slots__ = ("bundles", "streams")

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.bundles: dict[tuple[int, ...], Bundle] = {}

    @property
    def shared(self) -> bool:
        return len(self.streams) > 1


class Sharing:
    """Flows on links. Changes are collected and solved together by :meth:`solve`.

    Only links that carry flows have a state. One with a single flow is part of that flow's cap; flows that cross the
    same shared links form a bundle. ``announce`` is called with a link and its capacity before a flow first uses it and
    at changes; ``occupied`` when it begins to carry flows, so that its capacity can be updated.
    """

    def __init__(
        self,
        topology: Topology,
        transport: Transport,
        now: float,
        *,
        announce: Callable[[int, float], None],
        occupied: Callable[[int], None],
        allocator: Allocator | None = None,
    ) -> None:
        self._topology, self._transport = topology, transport
        self._wires = len(topology.capacity)
        # Each wireless channel is an additional link, whose capacity is all of its time.
        self._capacity = array("d", topology.capacity) + array("d", [1.0] * topology.airs)
        self._announced = array("d", [math.nan]) * len(self._capacity)
        self._announce, self._occupied = announce, occupied
        self._busy: dict[int, _BusyLink] = {}
        self._streams: dict[int, Stream] = {}
        self._bundle_numbers = itertools.count(1)
        self._alone = Bundle((), 0, now)
        self._bundles: dict[tuple[int, ...], Bundle] = {(): self._alone}
        self._unsolved: dict[int, None] = {}
        self._open_levels: dict[int, float] = {}
        self._moved: dict[tuple[int, ...], Bundle] = {}
        self._ends: list[tuple[float, int, Bundle]] = []
        self._allocator = allocator
        self._answers = itertools.count()
        self._answer: dict[int, int] = {}
        self._expiries: list[tuple[float, tuple[int, int]]] = []

    def capacity(self, link: int) -> float:
        return self._capacity[link]

    def is_busy(self, link: int) -> bool:
        return link in self._busy

    def announce(self, link: int) -> None:
        """Report the link's capacity to the observer, unless it is the one reported last."""
        capacity = self._capacity[link]
        if capacity != self._announced[link]:
            self._announced[link] = capacity
            self._announce(link, capacity)

    def assign_capacities(self, links: NDArray[np.int64], bits_per_second: NDArray[np.float64]) -> list[int]:
        """Set the capacities of many links; return the busy ones that changed, in a fixed order."""
        before = [(link, self._capacity[link]) for link in self._busy]
        np.frombuffer(self._capacity)[links] = bits_per_second
        return [link for link, capacity in before if self._capacity[link] != capacity]

    def set_capacity(self, link: int, bits_per_second: float) -> None:
        """Set a capacity; :meth:`apply_capacity` must follow if the link is busy."""
        self._capacity[link] = bits_per_second

    def apply_capacity(self, link: int, now: float) -> None:
        self.announce(link)
        busy = self._busy[link]
        if busy.shared:
            self._unsolved[link] = None
        # The capacity of a client's link in a cell determines the air that it takes; that of any link may change TCP's
        # shares.
        if not busy.shared or self._topology.air(link) >= 0 or self._transport.penalty_bytes is not None:
            for stream in list(busy.streams.values()):
                self._rebundle(stream, now)

    def join(
        self,
        flow: int,
        path: tuple[int, ...],
        bits: float,
        now: float,
        *,
        weight: float,
        latency: float,
        limit: float = math.inf,
        size: float = 0.0,
        outlook: Outlook | None = None,
    ) -> None:
        """A flow begins to use its links, at most at ``limit`` (bit/s), after ``latency`` without set-up (seconds)."""
        latency /= self._transport.latency_factor
        limit = min(limit, self._transport.limit(latency))
        stream = self._streams[flow] = Stream(flow, path, bits, weight, latency, limit, size, outlook or Outlook())
        if self._topology.airs:
            channels = ((self._topology.air(link), link) for link in path)
            stream.airs = tuple((self._wires + air, link) for air, link in channels if air >= 0)
            stream.path = (*path, *dict.fromkeys(air for air, _ in stream.airs))
        for link in stream.path:
            busy = self._busy.get(link)
            if busy is None:
                if link < self._wires:
                    self._occupied(link)
                    self.announce(link)
                busy = self._busy[link] = _BusyLink()
            sharers = busy.streams
            sharers[flow] = stream
            if len(sharers) == 2:
                companion = next(iter(sharers.values()))
                self._rebundle(companion, now)
        self._bundle(stream, now)

    def set_limit(self, flow: int, limit: float, now: float) -> None:
        stream = self._streams[flow]
        before, stream.limit = stream.limit, limit
        if not stream.cap < min(before, limit):  # else its own links limit it to less, before and after
            self._rebundle(stream, now)

    def leave(self, flow: int, now: float) -> None:
        stream = self._streams.get(flow)
        if stream is not None:
            self._unbundle(stream, now)
            self._vacate([stream], now)

    def bits_left(self, flow: int, now: float) -> float | None:
        stream = self._streams.get(flow)
        return None if stream is None or stream.bundle is None else stream.bundle.bits_left(stream, now)

    def rate(self, flow: int) -> float:
        stream = self._streams.get(flow)
        return 0.0 if stream is None or stream.bundle is None else stream.bundle.rate(stream)

    def take_complete(self, until: float, now: float) -> list[int]:
        complete: list[Stream] = []
        while self._ends and self._ends[0][0] <= until:
            end, _, bundle = heapq.heappop(self._ends)
            if end == bundle.next_end:
                complete.extend(bundle.take_complete(until, now))
                self._touch(bundle)
        if complete:
            self._vacate(complete, now)
        return [stream.flow for stream in complete]

    def next_end(self) -> float:
        while self._ends and self._ends[0][0] != self._ends[0][2].next_end:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else math.inf

    def solve(self, now: float) -> None:
        """Update all rates after the changes since the last call."""
        if self._allocator is not None and self._unsolved:
            self._allot(self._allocator, now)
        while self._unsolved:
            for bundle, level in self._levels(next(iter(self._unsolved))):
                if level != bundle.level:
                    bundle.set_level(level, now)
                    self._moved[bundle.links] = bundle
        for bundle in self._moved.values():
            end = bundle.find_next_end()
            if end < math.inf:
                heapq.heappush(self._ends, (end, bundle.number, bundle))
        self._moved.clear()
        if len(self._ends) > 4 * len(self._bundles) + 64:
            # Entries of former levels would accumulate where many bundles change at every event.
            self._ends = [(b.next_end, b.number, b) for b in self._bundles.values() if b.next_end < math.inf]
            heapq.heapify(self._ends)

    def take_expiries(self) -> list[tuple[float, tuple[int, int]]]:
        """When the allocator's answers since the last call expire; :meth:`ask_again` takes the second item then."""
        expiries, self._expiries = self._expiries, []
        return expiries

    def ask_again(self, what: tuple[int, int]) -> None:
        """An answer of the allocator expires now, unless a newer one has replaced it."""
        link, answer = what
        if self._answer[link] == answer and link in self._busy:
            self._unsolved[link] = None

    def _allot(self, allocator: Allocator, now: float) -> None:
        seen: set[int] = set()
        for link in list(self._unsolved):
            if link not in seen:
                links, bundles = self._component(link)
                seen.update(links)
                self._allot_component(allocator, links, bundles, now)

    def _allot_component(self, allocator: Allocator, links: list[int], bundles: list[Bundle], now: float) -> None:
        usable = {link: self._transport.efficiency * self._capacity[link] for link in links}
        usable = {link: rate for link, rate in usable.items() if rate < math.inf}
        flows: list[tuple[Stream, Claim]] = []
        transfers: list[Progress] = []
        for stream in sorted((each for one in bundles for each in one.streams.values()), key=lambda each: each.flow):
            bundle = stream.bundle
            assert bundle is not None
            claim = Claim(stream.most, tuple(link for link in bundle.links if link in usable), stream.airtime)
            alone = claim.alone(usable)
            if alone < math.inf:  # else nothing limits it, and it is complete at once
                flows.append((stream, claim))
                left = bundle.bits_left(stream, now) / 8.0
                transfers.append(Progress(stream.size, left, alone, stream.outlook))
        if not flows:
            return
        shares = allocator(now, transfers)
        rates = allotted([claim for _, claim in flows], shares, usable)
        answer = next(self._answers)
        self._answer.update(dict.fromkeys(links, answer))
        lasting = shares.lasts(rates)
        if lasting < math.inf:
            self._expiries.append((now + lasting, (links[0], answer)))
        for (stream, _), rate in zip(flows, rates, strict=True):
            if rate != stream.rate:
                stream.rate = rate
                self._rebundle(stream, now)

    def _levels(self, link: int) -> Iterable[tuple[Bundle, float]]:
        """The fair levels of all bundles that are connected with this link; marks it as solved."""
        busy, efficiency = self._busy.get(link), self._transport.efficiency
        if busy is not None and len(busy.bundles) == 1:
            (bundle,) = busy.bundles.values()
            if len(bundle.links) == 1:  # a star's server, the most common case: it is connected with no other link
                del self._unsolved[link]
                self._open_levels.pop(link, None)
                guess = bundle.level if bundle.level < math.inf else 0.0
                return [(bundle, link_level(efficiency * self._capacity[link], link, [bundle], guess))]
        links, bundles = self._component(link)
        for each in links:
            if each in self._unsolved:
                del self._unsolved[each]
                self._open_levels.pop(each, None)
        usable = {each: efficiency * self._capacity[each] for each in links}
        return zip(bundles, fair_levels(usable, bundles, self._open_levels), strict=True)

    def _component(self, link: int) -> tuple[list[int], list[Bundle]]:
        """The shared links and bundles that this link's rates depend on, in a fixed order."""
        links = {link: None}
        bundles: dict[tuple[int, ...], Bundle] = {}
        queue = [link]
        for member in queue:
            for key, bundle in self._busy[member].bundles.items() if member in self._busy else ():
                if key not in bundles:
                    bundles[key] = bundle
                    for other in key:
                        if other not in links:
                            links[other] = None
                            queue.append(other)
        return list(links), sorted(bundles.values(), key=lambda bundle: bundle.number)

    def _bundle(self, stream: Stream, now: float) -> None:
        busy, capacity = self._busy, self._capacity
        shared, least = [], math.inf
        for link in stream.path:
            if len(busy[link].streams) > 1:
                shared.append(link)
            elif link < self._wires and capacity[link] < least:
                least = capacity[link]
        key = tuple(shared)
        stream.cap = min(stream.limit, self._transport.efficiency * least)
        stream.weight = stream.own_weight
        if self._transport.penalty_bytes is not None:
            wires = (capacity[link] for link in stream.path if link < self._wires)
            stream.weight *= self._transport.weight(stream.latency, wires)
        if stream.airs:
            self._take_air(stream)
        if self._allocator is not None:
            stream.most = stream.cap
            if key:  # a flow that is alone on its links has all of them
                stream.cap = min(stream.cap, stream.rate)
        bundle = self._bundles.get(key)
        if bundle is None:
            bundle = self._bundles[key] = Bundle(key, next(self._bundle_numbers), now)
            for link in key:
                busy[link].bundles[key] = bundle
        bundle.add(stream, now)
        self._touch(bundle)

    def _take_air(self, stream: Stream) -> None:
        """Set what a flow takes of its channels, given the present capacities of its links to them."""
        airtime: dict[int, float] = {}
        for air, link in stream.airs:
            # A flow whose link is down has the rate 0, so it takes nothing of its channels.
            rate = self._capacity[link]
            airtime[air] = airtime.get(air, 0.0) + (1.0 / rate if rate > 0.0 else 0.0)
        longest = max(airtime.values())
        if self._topology.airtime_fair and longest > 0.0:
            stream.weight /= 1e6 * longest
        stream.airtime = {air: taken for air, taken in airtime.items() if len(self._busy[air].streams) > 1}
        for air, taken in airtime.items():
            if air not in stream.airtime and taken > 0.0:
                stream.cap = min(stream.cap, self._transport.efficiency / taken)

    def _unbundle(self, stream: Stream, now: float) -> None:
        bundle = stream.bundle
        if bundle is not None:
            bundle.remove(stream, now)
            self._touch(bundle)

    def _rebundle(self, stream: Stream, now: float) -> None:
        self._unbundle(stream, now)
        self._bundle(stream, now)

    def _touch(self, bundle: Bundle) -> None:
        """Mark the bundle's links to be solved again, or remove it if it is empty."""
        for link in bundle.links:
            self._unsolved[link] = None
        if bundle.streams or not bundle.links:
            self._moved[bundle.links] = bundle
            return
        bundle.next_end = math.nan  # no entry in the queue of ends equals it
        del self._bundles[bundle.links]
        self._moved.pop(bundle.links, None)
        for link in bundle.links:
            if link in self._busy:
                self._busy[link].bundles.pop(bundle.links, None)

    def _vacate(self, streams: list[Stream], now: float) -> None:
        # All of them leave before any link is processed again; otherwise a removed flow could be bundled again.
        links: dict[int, None] = {}
        for stream in streams:
            del self._streams[stream.flow]
            for link in stream.path:
                del self._busy[link].streams[stream.flow]
                links[link] = None
        survivors: dict[int, Stream] = {}
        for link in links:
            busy = self._busy[link]
            if not busy.streams:
                del self._busy[link]
            elif len(busy.streams) == 1:
                survivors.update(busy.streams)
        for stream in survivors.values():
            self._rebundle(stream, now)
