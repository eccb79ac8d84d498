"""An oracle for the network: from a log of transfers, every flow must get its max-min fair rate at the right times.

It shares no code with the network's solver: rates come from textbook progressive filling. It takes the logged starts,
ends and capacities as given, so one wrong row is reported at that row only, not at later rows that depend on it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import NamedTuple

from edgefl.network.fairness import Outlook, Progress
from edgefl.network.tcp import Opening
from edgefl.network.transport import Transport

# --- progressive filling ----------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A flow: its weight, and (constraint, its capacity, the amount that one bit/s takes) for each link or channel."""

    flow: int
    weight: float
    limits: list


def fill(claims):
    """Weighted max-min fair rates (Bertsekas and Gallager, Data Networks, section 6.5.2).

    All rates rise together, each in proportion to its weight, until a constraint is full and freezes its flows; the
    other rates continue to rise.
    """
    left, slopes = {}, {}
    by_flow = {claim.flow: claim for claim in claims}
    for claim in claims:
        for constraint, capacity, per_bit in claim.limits:
            left[constraint] = capacity
            slopes.setdefault(constraint, {})[claim.flow] = per_bit * claim.weight
    order = {constraint: number for number, constraint in enumerate(slopes)}
    latest = {constraint: left[constraint] / sum(slopes[constraint].values()) for constraint in slopes}
    offers = [(latest[constraint], order[constraint], constraint) for constraint in slopes]
    heapq.heapify(offers)
    rates = {claim.flow: math.inf for claim in claims if not claim.limits}
    while offers:
        offer, _, bottleneck = heapq.heappop(offers)
        if offer != latest[bottleneck] or not slopes[bottleneck]:
            continue
        changed = {}
        for flow in list(slopes[bottleneck]):
            claim = by_flow[flow]
            rates[flow] = offer * claim.weight
            for constraint, _, per_bit in claim.limits:
                del slopes[constraint][flow]
                left[constraint] = max(left[constraint] - rates[flow] * per_bit, 0.0)
                changed[constraint] = None
        for constraint in changed:
            if slopes[constraint]:
                # Summed again each time: subtracting the weights one by one would leave rounding errors in the divisor.
                latest[constraint] = max(left[constraint] / sum(slopes[constraint].values()), offer)
                heapq.heappush(offers, (latest[constraint], order[constraint], constraint))
    return rates


def fill_by_rank(claims, rank):
    """Rates where a claim gets only what the claims of lower ranks leave, and claims of one rank fill together."""
    rates, taken = {}, {}
    for each in sorted(set(rank)):
        rest = [
            claim._replace(limits=[(name, max(full - taken.get(name, 0.0), 0.0), a) for name, full, a in claim.limits])
            for claim, own in zip(claims, rank, strict=True)
            if own == each
        ]
        rates |= fill(rest)
        for claim in rest:
            for name, _, per_bit in claim.limits:
                taken[name] = taken.get(name, 0.0) + rates[claim.flow] * per_bit
    return rates


# --- logs -------------------------------------------------------------------------------------------------------------


class FlowRecord(NamedTuple):
    """The record of one flow in a log; ``latency`` includes the set-up of a connection.

    ``pruned`` are the links that a multicast stopped using, with their times, as receivers left it; ``ends`` are the
    source and target of a flow in one queue for all.
    """

    flow: int
    path: tuple
    bytes: float
    started: float
    latency: float = 0.0
    ended: float | None = None
    delivered: float | None = None
    cancelled: bool = False
    weight: float = 1.0
    pruned: tuple = ()
    ends: tuple | None = None
    setup: float = 0.0
    opening: Opening = Opening(0)
    outlook: Outlook = Outlook()


def record_of(flow, topology):
    """The record of a network's flow; its links are pairs of nodes."""
    return FlowRecord(
        flow.id,
        tuple(topology.ends(link) for link in flow.path),
        flow.bytes,
        flow.started,
        latency=flow.latency,
        ended=flow.ended,
        delivered=flow.delivered,
        cancelled=flow.cancelled,
        weight=flow.weight,
        ends=(flow.source, flow.target),
        setup=flow.setup,
        opening=flow.opening or Opening(0),
        outlook=flow.outlook or Outlook(),
    )


class Log:
    """An observer that keeps what a run's log contains: capacities as reported, and flows."""

    def __init__(self, env):
        self.env, self.capacities, self.flows = env, [], []

    def flow_started(self, flow):
        self.flows.append(flow)

    def flow_ended(self, flow): ...

    flow_cancelled = flow_ended

    def capacity_changed(self, link, source, target, bits_per_second):
        self.capacities.append((self.env.now, (source, target), bits_per_second))

    def audit(self, topology, **options):
        """What contradicts fair sharing in the run, under its transport and allocator."""
        records = [record_of(flow, topology) for flow in self.flows]
        air, fair = air_of(topology), topology.airtime_fair
        return audit_flows(self.capacities, records, **{"air": air, "airtime_fair": fair} | options)


def air_of(topology):
    """The wireless channel of each link that has one, by the link's nodes."""
    links = range(len(topology.capacity))
    return {topology.ends(link): topology.air(link) for link in links if topology.air(link) >= 0}


def merged(members):
    """The members of one multicast as the one flow that its links carry.

    It waits for the longest of their latencies, and lasts until its last member ends. A cancelled member also removes
    the links that no other member uses.
    """
    latency = max(member.latency for member in members)
    joined = members[0].started + latency
    lasting = sorted(members, key=lambda member: math.inf if member.ended is None else member.ended)
    # A member that leaves before the first byte flows, or with it, has used nothing; the last one represents all.
    using = [m for m in lasting if not (m.cancelled and m.ended is not None and m.ended <= joined)] or lasting[-1:]
    last, path = using[-1], dict.fromkeys(link for member in using for link in member.path)
    pruned, others = [], set()
    for member in reversed(using):
        alone = tuple(link for link in member.path if link not in others)
        others.update(alone)
        if member.cancelled and alone and member.ended is not None and member.ended != last.ended:
            pruned.append((member.ended, alone))
    return last._replace(path=tuple(path), latency=latency, pruned=tuple(pruned), ends=None)


# --- the audit --------------------------------------------------------------------------------------------------------


class _Active:
    """A flow between its first byte and its logged end."""

    def __init__(self, record, share, now):
        self.record, self.path, self.share = record, record.path, share
        self.opening = record.opening
        self.bits, self.rate, self.since = 0.0, 0.0, now
        self.reached = now if record.bytes == 0 else math.inf

    def advance(self, now):
        size = 8.0 * self.record.bytes
        if self.rate == math.inf:
            self.bits, self.reached = size, min(self.reached, self.since)
        else:
            arrived = self.bits + self.rate * (now - self.since)
            if self.reached == math.inf and self.rate > 0.0 and arrived >= size:
                self.reached = self.since + (size - self.bits) / self.rate
            self.bits = arrived
        self.since = now


def audit_flows(capacities, flows, *, air=None, airtime_fair=False, transport=None, allocator=None, tolerance=1e-6):
    """(seconds, flow, message) for everything in a log that contradicts exact max-min sharing, in the order of time.

    ``capacities`` are (seconds, link, bit/s); each link's first row must not come after its first use.
    """
    audit = _Audit(tolerance, air or {}, airtime_fair, transport or Transport(), allocator)
    return audit.run(capacities, flows)


class _Audit:
    def __init__(self, tolerance, air, airtime_fair, transport, allocator):
        self.tolerance, self.air, self.airtime_fair = tolerance, air, airtime_fair
        self.transport, self.allocator = transport, allocator
        self.answers, self.answer, self.expiries = itertools.count(), {}, []
        self.capacity, self.users, self.active, self.violations = {}, {}, {}, []

    def run(self, capacities, flows):
        changes, known = [], set()
        for seconds, link, rate in capacities:
            # A flow begins when its latency ends. The clock that logs its links then may be a rounding error later.
            begins = seconds if link in known else seconds - 4.0 * math.ulp(seconds)
            known.add(link)
            changes.append((begins, 0, self.set_capacity, (link, rate)))
        for record in flows:
            joined = record.started + record.latency
            # A flow that is cancelled exactly when its latency ends has used nothing.
            if record.ended is None or record.ended > joined or (record.ended == joined and not record.cancelled):
                changes.append((joined, 1, self.join, (record,)))
                changes += [(seconds, 1, self.grow, (record.flow,)) for seconds in self.growth(record, joined)]
                changes += [(seconds, 2, self.prune, (record.flow, links)) for seconds, links in record.pruned]
                if record.ended is not None:
                    changes.append((record.ended, 2, self.leave, (record.flow,)))
            elif not record.cancelled and record.ended < joined - self.tolerance * record.latency:
                self.report(record.ended, record.flow, "ended before its latency had passed")
        changes.sort(key=lambda change: change[:2])
        for now, batch in itertools.groupby(changes, key=lambda change: change[0]):
            self.expire(now)
            touched = {}
            for _, _, action, what in batch:
                touched.update(dict.fromkeys(action(now, *what)))
            self.share(touched, now)
        return sorted(self.violations)

    def report(self, seconds, flow, message):
        self.violations.append((seconds, flow, message))

    # Changes; each returns the links whose flows it concerns.

    def set_capacity(self, now, link, rate):
        self.capacity[link] = rate
        return (link,)

    def join(self, now, record):
        queue = self.transport.queue
        share = 1.0 if queue is None or record.ends is None else queue.weight(*record.ends, record.started)
        active = self.active[record.flow] = _Active(record, share, now)
        for link in record.path:
            if link not in self.capacity:
                self.report(now, record.flow, f"used link {link} before its first capacity was logged")
                self.capacity[link] = 0.0
            self.users.setdefault(link, {})[record.flow] = active
        return record.path

    def growth(self, record, joined):
        """When slow start raises the window of a flow."""
        tcp, latency, opening = self.transport.tcp, self.latency(record), record.opening
        ended, ticks = math.inf if record.ended is None else record.ended, 1
        while tcp is not None and tcp.grows(latency, opening) and joined + ticks * 2.0 * latency < ended:
            yield joined + ticks * 2.0 * latency
            opening = opening._replace(rounds=opening.rounds + 1)
            ticks += 1

    def grow(self, now, flow):
        if flow not in self.active:
            return ()
        active = self.active[flow]
        # Where the window did not limit a flow, a larger one changes no rate.
        limited = active.rate >= self.limit(active) * (1.0 - 1e-9)
        active.opening = active.opening._replace(rounds=active.opening.rounds + 1)
        return active.path if limited else ()

    def prune(self, now, flow, links):
        active = self.active[flow]
        active.advance(now)
        path, active.path = active.path, tuple(link for link in active.path if link not in links)
        for link in links:
            del self.users[link][flow]
        return path

    def leave(self, now, flow):
        active = self.active.pop(flow)
        record = active.record
        active.advance(now)
        expected, slack, late = active.bits / 8.0, self.slack(active, now), now - active.reached
        if record.cancelled:
            # Logs may round the delivered bytes of a cancelled flow to whole bytes.
            if record.delivered is not None and abs(min(expected, record.bytes) - record.delivered) > slack + 1.0:
                self.report(now, flow, f"delivered {record.delivered:g} bytes where fair sharing gives {expected:g}")
        elif record.path and expected < record.bytes - slack:
            self.report(now, flow, f"ended early: fair sharing had given {expected:g} of {record.bytes:g} bytes")
        elif record.path and late > self.tolerance * (now - record.started) + 4.0 * math.ulp(now):
            self.report(now, flow, f"ended {late:g} s later than fair sharing gives")
        for link in active.path:
            del self.users[link][flow]
        return active.path

    # Rates.

    def latency(self, record):
        return (record.latency - record.setup) / self.transport.latency_factor

    def limit(self, active):
        latency = self.latency(active.record)
        most, tcp = self.transport.limit(latency), self.transport.tcp
        return most if tcp is None else min(most, tcp.limit(latency, active.opening))

    def slack(self, active, now):
        """Bytes by which a flow may differ: the tolerance, and what it delivers in the resolution of the clock."""
        rate = active.rate
        if rate == 0.0:  # a flow that begins and ends at one time has no rate yet
            rate = min((self.capacity[link] for link in active.path), default=math.inf)
        return self.tolerance * active.record.bytes + (rate / 8.0 * 4.0 * math.ulp(now) if rate < math.inf else 0.0)

    def share(self, touched, now):
        if self.allocator is None:
            members, _ = self.connected(touched)
            self.give(members, fill([self.claim(members[flow]) for flow in sorted(members)]), now)
            return
        seen = set()
        for link in touched:
            if link not in seen:
                members, links = self.connected({link: None})
                seen.update(links)
                if members:
                    self.give(members, self.allotted(members, links, now), now)

    def give(self, members, rates, now):
        for flow, active in members.items():
            active.advance(now)
            active.rate = rates[flow]

    def expire(self, until):
        """Ask the allocator again where its answers expire before the next change."""
        while self.expiries and self.expiries[0][0] < until - 4.0 * math.ulp(until):
            seconds, answer, link = heapq.heappop(self.expiries)
            if self.answer[link] == answer:
                self.share({link: None}, seconds)

    def allotted(self, members, links, now):
        """The rates that the allocator's shares give to connected flows."""
        claims, transfers, rates = [], [], {}
        for flow in sorted(members):
            active, record = members[flow], members[flow].record
            active.advance(now)
            claim = self.claim(active)
            rates[flow] = min((full / each for _, full, each in claim.limits), default=math.inf)
            if rates[flow] < math.inf:
                claims.append(claim)
                left = max(record.bytes - active.bits / 8.0, 0.0)
                transfers.append(Progress(record.bytes, left, rates[flow], record.outlook))
        if not claims:
            return rates
        shares = self.allocator(now, transfers)
        weighted = [claim._replace(weight=weight) for claim, weight in zip(claims, shares.weight, strict=True)]
        rates |= fill_by_rank(weighted, shares.rank)
        answer = next(self.answers)
        self.answer.update(dict.fromkeys(links, answer))
        expiry = now + shares.lasts([rates[claim.flow] for claim in claims])
        if expiry < math.inf:
            heapq.heappush(self.expiries, (expiry, answer, next(iter(links))))
        return rates

    def connected(self, touched):
        """The flows that are connected with these links, and all links that connect them."""
        links, members, queue = dict(touched), {}, list(touched)
        for link in queue:
            alike = [other for other in self.users if self.air.get(other) == self.air[link]] if link in self.air else []
            for flow, active in [each for one in (link, *alike) for each in self.users.get(one, {}).items()]:
                if flow not in members:
                    members[flow] = active
                    new = [other for other in active.path if other not in links]
                    links.update(dict.fromkeys(new))
                    queue += new
        return members, links

    def claim(self, active):
        """What a flow takes of its links and channels, at their present capacities."""
        record, usable = active.record, self.transport.efficiency
        rates = {link: self.capacity[link] for link in active.path}
        limits = [(link, rate * usable, 1.0) for link, rate in rates.items() if rate < math.inf]
        if (most := self.limit(active)) < math.inf:
            limits.append((("flow", record.flow), most, 1.0))
        weight = record.weight * active.share * self.transport.weight(self.latency(record), rates.values())
        airtime = {}
        for link, rate in rates.items():
            if link in self.air and rate > 0.0:
                airtime[self.air[link]] = airtime.get(self.air[link], 0.0) + 1.0 / rate
        limits += [(("air", channel), usable, taken) for channel, taken in airtime.items() if taken > 0.0]
        if self.airtime_fair and max(airtime.values(), default=0.0) > 0.0:
            weight /= 1e6 * max(airtime.values())
        return Claim(record.flow, weight, limits)
