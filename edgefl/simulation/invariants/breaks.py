"""Attempts to transfer something break when a time-out expires, and are repeated as the options say."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from edgefl.network.timeouts import Timeouts
from edgefl.record.events import Event
from edgefl.simulation.invariants.record import Record, at, close

_SAME = ("round", "client", "dispatch", "item", "source", "target")


class _Attempt(NamedTuple):
    """One attempt: the rows of its start, its end and, if it broke, its break."""

    start: Event
    end: Event
    broken: Event | None


def attempts(record: Record) -> Iterator[str]:
    """Each break ends an attempt, keeps what the options say, and is followed by the next attempt."""
    timeouts, draws = record.timeouts, Counter[tuple[str, str, int, str]]()
    if timeouts is None:
        for event in record.of("transfer_break"):
            yield f"{at(event)}: transfer {event.flow} breaks, but there are no time-outs"
        return
    drawn: dict[int, float] = {}
    for event in record.of("transfer_break"):
        place = (event.source, event.target, event.round - 1, event.item)
        if event.facts.get("again"):
            draws[place] += 1
            drawn[event.flow] = timeouts.drawn_wait(int(event.value), record.summary.seed, *place, draws[place])
    abandoned, chains = _ends_of_jobs(record), _transfers(record)
    for chain in chains:
        yield from _chain(chain, timeouts, drawn, abandoned)
    known = {each.broken.flow for chain in chains for each in chain if each.broken is not None}
    for event in record.of("transfer_break"):
        if event.flow not in known:
            yield f"{at(event)}: transfer {event.flow} breaks, but no transfer was aborted at that time"


def waits(record: Record) -> Iterator[str]:
    """Each attempt begins when the wait after the break before it is over."""
    for chain in _transfers(record):
        for (_, _, broken), (start, _, _) in itertools.pairwise(chain):
            due = math.nan if broken is None else broken.time + broken.seconds
            if broken is not None and not close(start.time, due, clock=due):
                yield f"{at(start)}: the attempt was due at {due:.6f} s"


def expiry(record: Record) -> Iterator[str]:
    """A time-out expires when the log says so, and no attempt lasts or stalls for longer."""
    timeouts = record.timeouts
    if timeouts is None:
        return
    stalls = _Stalls(record)
    for chain in _transfers(record):
        for start, end, broken in chain:
            cause = None if broken is None else broken.facts.get("cause")
            seconds, due = end.time - start.time, timeouts.transfer
            if due is not None and seconds > due * (1 + 1e-9) + 4 * math.ulp(end.time):
                yield f"{at(end)}: attempt {start.flow} lasted {seconds:g} s, its time-out is {due:g} s"
            if cause == "transfer" and (due is None or not close(seconds, due, clock=end.time)):
                yield f"{at(end)}: attempt {start.flow} broke after {seconds:g} s, its time-out is {due} s"
            due = timeouts.connection
            stalled = [] if due is None and cause != "connection" else stalls.of(start, end)
            for began, ended in stalled:
                if due is not None and ended - began > due * (1 + 1e-9) + 4 * math.ulp(ended):
                    yield f"{at(end)}: attempt {start.flow} stalled for {ended - began:g} s, its time-out is {due:g} s"
            if cause == "connection":
                last = stalled[-1] if stalled and stalled[-1][1] == end.time else (end.time, end.time)
                if due is None or not close(last[1] - last[0], due, clock=end.time):
                    found = last[1] - last[0]
                    yield f"{at(end)}: attempt {start.flow} broke after {found:g} s of a stall, its time-out is {due} s"
            if broken is not None and cause not in ("connection", "transfer"):
                yield f"{at(broken)}: unknown cause {cause!r}"


def giving_up(record: Record) -> Iterator[str]:
    """A client drops out because of a time-out exactly when its transfer, or its cell's, has failed."""
    failed: dict[tuple[int, int, float], Event] = {}
    relays: set[tuple[int, str, float]] = set()
    cells = {event.client: event.source for event in record.of("transfer_start") if event.item != "relay"}
    ups = {event.client: event.target for event in record.of("transfer_start") if event.item == "up"}
    for event in record.of("transfer_break"):
        if event.facts.get("again") is not False:
            continue
        if event.item == "relay":
            relays.add((event.round, event.target if event.source == "server" else event.source, event.time))
        else:
            failed[*event.job, event.time] = event
    for event in record.of("dropout"):
        if event.item == "timeout" and failed.pop((*event.job, event.time), None) is None:
            yield f"{at(event)}: drops out because of a time-out, but no transfer of its job failed"
        if event.item == "backhaul":
            cell = ups.get(event.client, cells.get(event.client))
            places = {(round, time) for round, node, time in relays if cell in (None, node)}
            if (event.round, event.time) not in places:
                yield f"{at(event)}: drops out because of its cell, but no transfer of the cell failed"
    for event in failed.values():
        if event.item not in ("prefetch", "broadcast"):
            yield f"{at(event)}: its transfer failed, but the client did not drop out"


def counts(record: Record) -> Iterator[str]:
    """The summary counts the log's breaks, the attempts after them, and the transfers that failed."""
    broken = list(record.of("transfer_break"))
    expected = {
        "breaks": len(broken),
        # Most rows have no such fact; reading all of them as JSON would take longer than all other checks of a row.
        "retries": sum('"first"' in each.detail and "first" in each.facts for each in record.of("transfer_start")),
        "failed": sum(event.facts.get("again") is False for event in broken),
    }
    reported = record.summary.transfers
    if reported is None and (record.timeouts is not None or any(expected.values())):
        yield "transfers: summary.json has none, but transfers could break"
    for name, count in expected.items() if reported is not None else ():
        if getattr(reported, name) != count:
            yield f"transfers.{name}: summary.json has {getattr(reported, name)}, the log has {count}"


def _transfers(record: Record) -> list[list[_Attempt]]:
    """The attempts of each transfer that has ended, in their order."""
    ends = {event.flow: event for event in record.of("transfer_end", "transfer_drop")}
    breaks = {event.flow: event for event in record.of("transfer_break")}
    found: dict[int, list[_Attempt]] = {}
    for start in record.of("transfer_start"):
        end, broken = ends.get(start.flow), breaks.get(start.flow)
        if end is not None:
            if broken is not None and (broken.time != end.time or end.kind == "transfer_end"):
                broken = None
            found.setdefault(start.facts.get("first", start.flow), []).append(_Attempt(start, end, broken))
    return list(found.values())


def _chain(
    chain: Sequence[_Attempt],
    timeouts: Timeouts,
    drawn: dict[int, float],
    abandoned: dict[tuple[int, int], list[float]],
) -> Iterator[str]:
    """One transfer: its attempts follow each other, and send what the options say."""
    first = chain[0].start
    if "first" in first.facts:
        yield f"{at(first)}: attempt {first.flow} repeats transfer {first.facts['first']}, which the log does not have"
    size, kept = int(first.bytes), 0
    for number, (start, end, broken) in enumerate(chain, 1):
        for each in (start, broken or start):
            if any(getattr(each, name) != getattr(first, name) for name in _SAME):
                yield f"{at(each)}: attempt {start.flow} is not for the same job as attempt {first.flow}"
        if start.bytes != size - kept:
            yield f"{at(start)}: attempt {start.flow} sends {start.bytes:g} bytes, {size - kept} of {size} are left"
        if broken is None:
            if number < len(chain):
                yield f"{at(end)}: attempt {start.flow} did not break, but is repeated"
            continue
        delivered = kept + int(end.bytes)
        kept = timeouts.kept(delivered)
        yield from _broken(broken, timeouts, number, delivered, drawn.get(start.flow, 0.0))
        last = number == len(chain) and broken.facts.get("again") and broken.item != "relay"
        if last and not _between(abandoned[broken.job], broken.time, broken.time + broken.seconds):
            yield f"{at(broken)}: no other attempt follows"


def _broken(broken: Event, timeouts: Timeouts, number: int, delivered: int, wait: float) -> Iterator[str]:
    """One break: number ``number`` of its transfer, which has ``delivered`` bytes by then."""
    kept, again = timeouts.kept(delivered), number <= timeouts.retries
    if broken.facts.get("kept") != kept or broken.bytes != delivered - kept:
        yield f"{at(broken)}: of {delivered} bytes, {kept} are kept, not {broken.facts.get('kept')}"
    if broken.value != number or broken.facts.get("again") != again:
        yield f"{at(broken)}: is break {number} of the transfer, of at most {timeouts.retries} that are followed"
    if not close(broken.seconds, wait if again else 0.0):
        yield f"{at(broken)}: waits for {broken.seconds:g} s, the back-off is {wait:g} s"


def _between(times: Sequence[float], first: float, last: float) -> bool:
    return any(first <= time <= last for time in times)


def _ends_of_jobs(record: Record) -> dict[tuple[int, int], list[float]]:
    """When each job was lost."""
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for event in record.of("lost"):
        found[event.job].append(event.time)
    return found


class _Stalls:
    """When attempts moved no byte, from the capacities in the log.

    A ``repetition`` row ends before any time-out could expire, so a span that seems to last through it is within the
    time-out as well.
    """

    def __init__(self, record: Record) -> None:
        self._down: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        since: dict[tuple[str, str], float] = {}
        for event in record.of("capacity"):
            link = (event.source, event.target)
            if event.value > 0 and link in since:
                self._down[link].append((since.pop(link), event.time))
            elif event.value <= 0:
                since.setdefault(link, event.time)
        for link, began in since.items():
            self._down[link].append((began, math.inf))

    def of(self, start: Event, end: Event) -> list[tuple[float, float]]:
        """The spans in which no byte of the attempt moved, in order; the first begins at its start."""
        joined = start.time + start.value
        spans = [(start.time, min(joined, end.time))]
        for link in itertools.pairwise(start.facts.get("path", ())):
            for began, ended in self._down.get(link, ()):
                span = (max(began, joined), min(ended, end.time))
                if span[0] < span[1]:
                    spans.append(span)
        merged: list[tuple[float, float]] = []
        for began, ended in sorted(spans):
            if merged and began <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
            else:
                merged.append((began, ended))
        return merged


LAWS = (attempts, waits, expiry, giving_up, counts)
