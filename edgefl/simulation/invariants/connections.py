"""Each transfer over TCP finds its connection in the state in which earlier transfers of the log have left it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from edgefl.network.tcp import TICKET_SECONDS, Opening, Tcp
from edgefl.record.events import Event
from edgefl.simulation.invariants.record import Record, at, close

Pair = frozenset[str]


class _Idle(NamedTuple):
    """An idle connection: since when, and by sender when it sent last, and in which state it was then."""

    since: float
    sent: dict[str, tuple[float, Opening]]


def opened(record: Record) -> Iterator[str]:
    """A transfer's set-up, window and losses follow from earlier transfers between its two nodes."""
    tcp = record.transport.tcp
    if tcp is None:
        return
    latencies = _latencies(record)
    idle: defaultdict[Pair, list[_Idle]] = defaultdict(list)
    completed: dict[Pair, float] = {}
    using: dict[int, tuple[Event, dict[str, tuple[float, Opening]]]] = {}
    for event in record.events:
        if event.kind == "failure" and event.item == "crash":
            # The client's process has ended, and so have its connections.
            for known in (idle, completed):
                for closed in [pair for pair in known if f"client/{event.client}" in pair]:
                    del known[closed]
        if event.kind not in ("transfer_start", "transfer_end", "transfer_drop"):
            continue
        pair = frozenset((event.source, event.target))
        if event.kind == "transfer_start":
            path = event.facts.get("path", [])
            latency = sum(latencies.get(link, 0.0) for link in pairwise(path))
            pool = idle[pair]
            while pool and event.time - pool[-1].since > tcp.keep_alive:
                pool.pop()
            found = pool.pop() if pool else None
            last = completed.get(pair, -math.inf)
            using[event.flow] = event, {} if found is None else found.sent
            yield from _begun(tcp, event, found, latency, repeated=event.time - last <= TICKET_SECONDS)
        elif event.flow in using:
            start, sent = using.pop(event.flow)
            if event.kind == "transfer_end":
                completed[pair] = event.time
                sent[event.source] = _left(tcp, start, event)
                if tcp.keep_alive > 0.0:
                    idle[pair].append(_Idle(event.time, sent))


def _begun(tcp: Tcp, event: Event, found: _Idle | None, latency: float, *, repeated: bool) -> Iterator[str]:
    logged: dict[str, Any] = event.facts.get("connection", {})
    setup = float(logged.get("setup", math.nan))
    round_trips = tcp.round_trips(repeated=repeated) if found is None else 0
    if not close(setup, round_trips * 2.0 * latency) or not close(event.value, latency + setup):
        yield (
            f"{at(event)}: transfer {event.flow} begins to send after {event.value:g} s, of which {setup:g} s are the"
            f" set-up; its connection needs {round_trips} round trips of {2.0 * latency:g} s"
        )
    unused = (event.time, Opening(0))
    sent, state = unused if found is None else found.sent.get(event.source, unused)
    if tcp.restart_idle and event.time - sent > tcp.timeout(latency):
        state = state._replace(rounds=0)
    begun = logged_opening(logged)
    # The clock does not decide whether a transfer that ends with a round trip has seen it whole.
    if not state.rounds - 1 <= begun.rounds <= state.rounds + 1:
        yield (
            f"{at(event)}: transfer {event.flow} found a window grown {begun.rounds} times; earlier transfers left one"
            f" grown {state.rounds} times"
        )
    if not close(begun.sent, state.sent):
        yield (
            f"{at(event)}: transfer {event.flow} found a connection that had carried {begun.sent:g} bytes; earlier"
            f" transfers had sent {state.sent:g} bytes over it"
        )


def logged_opening(logged: dict[str, Any]) -> Opening:
    """The state of a connection as the log has it."""
    return Opening(0, int(logged.get("rounds", -1)), float(logged.get("sent", 0.0)))


def _left(tcp: Tcp, start: Event, end: Event) -> tuple[float, Opening]:
    """When the transfer ended, and the state in which it left its connection."""
    logged = start.facts.get("connection", {})
    round_trip = 2.0 * (start.value - logged.get("setup", 0.0))
    state = tcp.after(float(start.bytes), logged_opening(logged))
    seconds = start.time + start.value + round_trip
    while seconds <= end.time and tcp.grows(round_trip / 2.0, state):
        state = state._replace(rounds=state.rounds + 1)
        seconds += round_trip
    return end.time, state


def _latencies(record: Record) -> dict[tuple[str, str], float]:
    """Seconds of each link."""
    links = record.topology
    names = (links.ends(link) for link in range(len(links.capacity)))
    return {(str(source), str(target)): links.latency[link] for link, (source, target) in enumerate(names)}


LAWS = (opened,)
