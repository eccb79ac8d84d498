"""An independent check of a finished run: every flow must get its max-min fair rate at the right times.

The audit shares no code with the network's own solver: rates come from textbook progressive filling (``filling.py``).
It takes the logged starts, ends and capacities as given, so one wrong row is reported at that row only, not at later
rows that depend on it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from edgefl.network.allotment import Allocator, Outlook, Progress
from edgefl.network.audit_carried import Carried
from edgefl.network.audit_connections import Grown, Lost, window_changes
from edgefl.network.audit_records import FlowRecord, Link, Repetition
from edgefl.network.filling import Claim, fill, fill_by_rank
from edgefl.network.tcp import Opening
from edgefl.network.transport import Transport


class Violation(NamedTuple):
    """A rule that a log breaks."""

    seconds: float
    flow: int
    message: str


class _Capacity(NamedTuple):
    """A row that changes the capacity of a link."""

    link: Link
    bits_per_second: float


class _Pruned(NamedTuple):
    """A flow that stops using some of its links."""

    flow: int
    links: tuple[Link, ...]


class _Marked(NamedTuple):
    """A time in a repetition: its period begins (0), its period ends (1), or the last repetition ends (2)."""

    repetition: Repetition
    stage: int


_Change = FlowRecord | _Capacity | _Pruned | _Marked | Grown | Lost


class _Active:
    """A flow between its first byte and its logged end."""

    __slots__ = ("bits", "legs", "marks", "opening", "path", "rate", "reached", "record", "share", "since")

    def __init__(self, record: FlowRecord, legs: list[tuple[float, Opening]], now: float) -> None:
        self.record = record
        self.path = record.path
        self.legs = legs
        self.opening = legs[0][1]
        self.share = 1.0
        self.marks = [0.0, 0.0]
        self.bits = 0.0
        self.rate = 0.0
        self.since = now
        self.reached = now if record.bytes == 0 else math.inf

    def advance(self, now: float) -> None:
        size = 8.0 * self.record.bytes
        if self.rate == math.inf:
            self.bits, self.reached = size, min(self.reached, self.since)
            self.since = now
            return
        arrived = self.bits + self.rate * (now - self.since)
        if self.reached == math.inf and self.rate > 0.0 and arrived >= size:
            self.reached = self.since + (size - self.bits) / self.rate
        self.bits, self.since = arrived, now


def audit_flows(
    capacities: Iterable[tuple[float, Link, float]],
    flows: Iterable[FlowRecord],
    *,
    air: Mapping[Link, Hashable] | None = None,
    airtime_fair: bool = False,
    transport: Transport | None = None,
    allocator: Allocator | None = None,
    repetitions: Sequence[Repetition] = (),
    tolerance: float = 1e-6,
) -> list[Violation]:
    """Everything in a log of transfers that contradicts exact max-min sharing.

    Args:
        capacities: (seconds, link, bit/s): from then on the link has that capacity. Each link's first row must not come
            after its first use.
        flows: all flows of the run.
        air: the wireless channel of each link that has one. The flows of a channel together take at most all of its
            time; each takes ``rate / capacity of its link``.
        airtime_fair: whether a channel's flows get equal shares of its time; else equal rates.
        transport: how flows used their paths; a pure fluid by default.
        allocator: decided how they shared their links; None for equal shares, weighted by their transport.
        repetitions: repeated periods that the log contains only once.
        tolerance: relative, on bytes and on durations.

    Returns:
        Violations in the order of time; none for a correct log.

    Two flows share 8 Mbit/s; the logged end of the second is too early.

    >>> sound = FlowRecord(0, ("a",), 1e6, started=0.0, ended=2.0)
    >>> hasty = FlowRecord(1, ("a",), 1e6, started=0.0, ended=1.5)
    >>> [violation.flow for violation in audit_flows([(0.0, "a", 8e6)], [sound, hasty])]
    [1, 0]
    """
    audit = _Audit(tolerance, dict(air or {}), airtime_fair, transport or Transport(), allocator)
    return audit.run(capacities, flows, repetitions)


class _Audit:
    def __init__(
        self,
        tolerance: float,
        air: Mapping[Link, Hashable],
        airtime_fair: bool,
        transport: Transport,
        allocator: Allocator | None,
    ) -> None:
        self.transport = transport
        self.allocator = allocator
        self.answers = itertools.count()
        self.answer: dict[Link, int] = {}
        self.expiries: list[tuple[float, int, Link]] = []
        self.tolerance = tolerance
        self.air = air
        self.airtime_fair = airtime_fair
        self.capacity: dict[Link, float] = {}
        self.users: dict[Link, dict[int, _Active]] = {}
        self.channel_users: dict[Hashable, dict[int, _Active]] = {}
        self.violations: list[Violation] = []
        self.carried = Carried(self.capacity)

    def run(
        self,
        capacities: Iterable[tuple[float, Link, float]],
        flows: Iterable[FlowRecord],
        repetitions: Sequence[Repetition],
    ) -> list[Violation]:
        changes: list[tuple[float, int, _Change]] = []
        known: set[Link] = set()
        for seconds, link, rate in capacities:
            # A flow begins when its latency ends. The clock that logs its links then may be a rounding error later.
            begins = seconds if link in known else seconds - 4.0 * math.ulp(seconds)
            known.add(link)
            changes.append((begins, 0, _Capacity(link, rate)))
        changes += self.of_flows(flows)
        for each in repetitions:
            moments = (each.since, each.since + each.period, each.ended)
            changes += [(moment, 3, _Marked(each, stage)) for stage, moment in enumerate(moments)]
        changes.sort(key=lambda change: change[:2])
        active: dict[int, _Active] = {}
        for now, batch in itertools.groupby(changes, key=lambda change: change[0]):
            self.expire(now)
            touched: dict[Link, None] = {}
            for _, kind, what in batch:
                if isinstance(what, FlowRecord) and kind == 1:
                    active[what.flow] = self.join(what, now)
                    links: Iterable[Link] = what.path
                elif isinstance(what, FlowRecord):
                    self.leave(active.pop(what.flow), now)
                    links = what.path
                else:
                    links = self.change(what, active, now)
                touched.update(dict.fromkeys(links))
            self.share(touched, now)
        return sorted(self.violations)

    def of_flows(self, flows: Iterable[FlowRecord]) -> Iterator[tuple[float, int, _Change]]:
        """Checks the records; yields when the flows begin and end to use their links, and what changes meanwhile."""
        for record in flows:
            self.check_record(record)
            joined = record.started + record.latency
            # A flow that is cancelled exactly when its latency ends has used nothing.
            if record.ended is None or record.ended > joined or (record.ended == joined and not record.cancelled):
                yield joined, 1, record
                if record.ended is not None:
                    yield record.ended, 2, record
                for seconds, links in record.pruned:
                    yield seconds, 2, _Pruned(record.flow, links)
                if self.transport.tcp is not None:
                    for seconds, change in window_changes(self.transport.tcp, record, self.latency(record)):
                        yield seconds, 1, change

    def change(self, what: _Change, active: Mapping[int, _Active], now: float) -> Iterable[Link]:
        """Apply a change other than a begin or an end; returns the links whose flows it concerns."""
        if isinstance(what, _Pruned):
            links = active[what.flow].path
            self.prune(active[what.flow], what.links, now)
            return links
        if isinstance(what, _Marked):
            self.mark(active.values(), what, now)
            return ()
        if isinstance(what, Grown | Lost):
            if what.flow not in active:
                return ()
            grown = active[what.flow]
            # Where the window did not limit a flow, a larger one changes no rate; most flows of a busy link are such.
            limits = isinstance(what, Lost) or grown.rate >= self.limit(grown) * (1.0 - 1e-9)
            self.change_window(grown, what, now)
            return grown.path if limits else ()
        assert isinstance(what, _Capacity)
        self.carried.advance(what.link, now)
        self.capacity[what.link] = what.bits_per_second
        return (what.link,)

    def report(self, seconds: float, flow: int, message: str) -> None:
        self.violations.append(Violation(seconds, flow, message))

    def check_record(self, record: FlowRecord) -> None:
        if record.ended is None:
            return
        joined = record.started + record.latency
        if record.ended < record.started:
            self.report(record.ended, record.flow, f"ended before it started, at {record.started} s")
        elif not record.cancelled and record.ended < joined - self.tolerance * record.latency:
            self.report(record.ended, record.flow, f"ended before its latency of {record.latency} s had passed")
        if not record.cancelled and record.delivered is not None and record.delivered != record.bytes:
            self.report(record.ended, record.flow, f"delivered {record.delivered:g} of {record.bytes:g} bytes")

    def join(self, record: FlowRecord, now: float) -> _Active:
        active = _Active(record, self.legs(record), now)
        if self.transport.queue is not None and record.ends is not None:
            active.share = self.transport.queue.weight(*record.ends, record.started)
        for link in record.path:
            if link not in self.capacity:
                self.report(now, record.flow, f"used link {link} before its first capacity was logged")
                self.capacity[link] = 0.0
            self.users.setdefault(link, {})[record.flow] = active
            self.carried.begin(link, now)
            if link in self.air:
                self.channel_users.setdefault(self.air[link], {})[record.flow] = active
        return active

    def leave(self, active: _Active, now: float) -> None:
        record = active.record
        active.advance(now)
        expected = active.bits / 8.0
        blur = 4.0 * math.ulp(now)
        slack = self.tolerance * record.bytes + self.blurred(active, now)
        due, _ = active.legs[0]
        if len(active.legs) > 1 and expected > due + slack:
            self.report(now, record.flow, f"sent on after {due:g} bytes, where losses change its rate")
        if record.cancelled:
            # Logs may round the delivered bytes of a cancelled flow to whole bytes.
            if record.delivered is not None and abs(min(expected, record.bytes) - record.delivered) > slack + 1.0:
                self.report(
                    now, record.flow, f"delivered {record.delivered:g} bytes where fair sharing gives {expected:g}"
                )
        elif record.path:
            late = now - active.reached
            if expected < record.bytes - slack:
                self.report(
                    now, record.flow, f"ended early: fair sharing had given {expected:g} of {record.bytes:g} bytes"
                )
            elif late > self.tolerance * (now - record.started) + blur:
                self.report(now, record.flow, f"ended {late:g} s later than fair sharing gives")
        delivered = record.delivered
        if delivered is None:
            delivered = min(expected, record.bytes) if record.cancelled else record.bytes
        links, active.path = active.path, ()
        self.vacate(active, links, 8.0 * delivered, now)

    def change_window(self, active: _Active, what: Grown | Lost, now: float) -> None:
        """The state of a flow's connection changes; losses must change it after the expected bytes."""
        if isinstance(what, Grown):
            active.opening = active.opening._replace(rounds=active.opening.rounds + 1)
            return
        active.advance(now)
        sent, flow = active.bits / 8.0, active.record.flow
        if len(active.legs) < 2:
            self.report(now, flow, f"was slowed down by losses after {sent:g} bytes, where none are expected")
            return
        expected, _ = active.legs.pop(0)
        if abs(sent - expected) > self.tolerance * active.record.bytes + self.blurred(active, now):
            self.report(now, flow, f"was slowed down by losses after {sent:g} bytes, not {expected:g}")
        active.opening = active.legs[0][1]._replace(rounds=active.opening.rounds)

    def legs(self, record: FlowRecord) -> list[tuple[float, Opening]]:
        """The bytes that a flow has sent at the end of each of its legs, and the state of its connection in it."""
        opening = record.opening or Opening(0)
        if self.transport.tcp is None:
            return [(record.bytes, opening)]
        legs = self.transport.tcp.legs(record.bytes, opening)
        sent = itertools.accumulate(bytes for bytes, _ in legs)
        return [(bytes, state) for bytes, (_, state) in zip(sent, legs, strict=True)]

    def latency(self, record: FlowRecord) -> float:
        """One-way seconds of a flow's path."""
        return (record.latency - record.setup) / self.transport.latency_factor

    def limit(self, active: _Active) -> float:
        """The maximum rate of a flow whatever its links, bit/s."""
        latency = self.latency(active.record)
        most, tcp = self.transport.limit(latency), self.transport.tcp
        return most if tcp is None else min(most, tcp.limit(latency, active.opening))

    def blurred(self, active: _Active, now: float) -> float:
        """The bytes that a flow delivers in the resolution of the clock."""
        rate = active.rate
        if rate == 0.0:  # a flow that begins and ends at one time has no rate yet
            rate = min((self.capacity[link] for link in active.path), default=math.inf)
        return rate / 8.0 * 4.0 * math.ulp(now) if rate < math.inf else 0.0

    def prune(self, active: _Active, links: Sequence[Link], now: float) -> None:
        """A flow continues without some of its links."""
        active.advance(now)
        active.path = tuple(link for link in active.path if link not in links)
        self.vacate(active, links, min(active.bits, 8.0 * active.record.bytes), now)

    def mark(self, active: Iterable[_Active], what: _Marked, now: float) -> None:
        """Record the totals of flows and links when a period begins and ends, or add what its repetitions delivered."""
        for flow in active:
            if what.stage < 2:
                flow.advance(now)
                flow.marks[what.stage] = flow.bits
            else:
                flow.bits += what.repetition.times * (flow.marks[1] - flow.marks[0])
                flow.since = now
        self.carried.mark(what.repetition, what.stage, now)

    def vacate(self, active: _Active, links: Sequence[Link], bits: float, now: float) -> None:
        """A flow that has sent ``bits`` so far stops using some links."""
        record = active.record
        for link in links:
            del self.users[link][record.flow]
            excess = self.carried.excess(link, bits, now)
            if excess > self.tolerance:
                self.report(now, record.flow, f"link {link} exceeded its capacity by a share of {excess:.3g}")
            if not self.users[link]:
                self.carried.end(link)
            if link in self.air and not any(self.air.get(other) == self.air[link] for other in active.path):
                self.channel_users[self.air[link]].pop(record.flow, None)

    def share(self, touched: Mapping[Link, None], now: float) -> None:
        """New rates for the flows that are connected with the changed links."""
        if self.allocator is None:
            members = self.connected(touched)[0]
            rates = fill([self.claim(members[number]) for number in sorted(members)])
            self.give(members, rates, now)
            return
        seen: set[Link] = set()
        for link in touched:
            if link not in seen:
                members, links = self.connected({link: None})
                seen.update(links)
                if members:
                    self.give(members, self.allotted(self.allocator, members, links, now), now)

    def give(self, members: Mapping[int, _Active], rates: Mapping[int, float], now: float) -> None:
        """Let flows continue at new rates."""
        for number in sorted(members):
            members[number].advance(now)
            members[number].rate = rates[number]

    def expire(self, until: float) -> None:
        """Ask the allocator again where its answers expire before the next change."""
        while self.expiries and self.expiries[0][0] < until - 4.0 * math.ulp(until):
            seconds, answer, link = heapq.heappop(self.expiries)
            if self.answer[link] == answer:
                self.share({link: None}, seconds)

    def allotted(
        self, allocator: Allocator, members: Mapping[int, _Active], links: Iterable[Link], now: float
    ) -> dict[int, float]:
        """The rates that the allocator's shares give to connected flows."""
        claims: list[Claim] = []
        transfers: list[Progress] = []
        rates: dict[int, float] = {}
        for number in sorted(members):
            active = members[number]
            active.advance(now)
            claim = self.claim(active)
            alone = min((full / each for _, full, each in claim.limits), default=math.inf)
            rates[number] = alone
            if alone < math.inf:  # else nothing limits it
                record = active.record
                left = max(record.bytes - active.bits / 8.0, 0.0)
                claims.append(claim)
                transfers.append(Progress(record.bytes, left, alone, record.outlook or Outlook()))
        if not claims:
            return rates
        shares = allocator.shares(now, transfers)
        weighted = [claim._replace(weight=weight) for claim, weight in zip(claims, shares.weight, strict=True)]
        rates |= fill_by_rank(weighted, shares.rank)
        answer = next(self.answers)
        self.answer.update(dict.fromkeys(links, answer))
        expiry = now + shares.lasts([rates[claim.flow] for claim in claims])
        if expiry < math.inf:
            heapq.heappush(self.expiries, (expiry, answer, next(iter(links))))
        return rates

    def connected(self, touched: Mapping[Link, None]) -> tuple[dict[int, _Active], dict[Link, None]]:
        """The flows that are connected with these links, and all links that connect them."""
        links = dict(touched)
        members: dict[int, _Active] = {}
        queue = list(links)
        for link in queue:
            users = self.users.get(link, {})
            if link in self.air:
                users = users | self.channel_users.get(self.air[link], {})
            for number, active in users.items():
                if number not in members:
                    members[number] = active
                    for other in active.path:
                        if other not in links:
                            links[other] = None
                            queue.append(other)
        return members, links

    def claim(self, active: _Active) -> Claim:
        """What a flow takes of its links and channels, at their present capacities."""
        record = active.record
        rates = {link: self.capacity[link] for link in active.path}
        usable, latency = self.transport.efficiency, self.latency(record)
        limits: list[tuple[Hashable, float, float]] = [
            (link, rate * usable, 1.0) for link, rate in rates.items() if rate < math.inf
        ]
        most = self.limit(active)
        if most < math.inf:
            limits.append((("flow", record.flow), most, 1.0))
        airy = [link for link in rates if link in self.air]
        weight = record.weight * active.share * self.transport.weight(latency, rates.values())
        airtime: dict[Hashable, float] = {}
        for link in airy:
            if rates[link] > 0.0:
                airtime[self.air[link]] = airtime.get(self.air[link], 0.0) + 1.0 / rates[link]
        limits += [(("air", channel), usable, taken) for channel, taken in airtime.items() if taken > 0.0]
        longest = max(airtime.values(), default=0.0)
        if self.airtime_fair and longest > 0.0:
            weight /= 1e6 * longest
        return Claim(record.flow, weight, limits)
