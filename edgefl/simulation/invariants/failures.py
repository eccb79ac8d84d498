"""Crashes and outages happen at the times of the scenario, and what they hit ends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from edgefl.record.events import Event
from edgefl.simulation.failure_specs import Span, crashes_of, outages_of
from edgefl.simulation.invariants.record import Record, at, close

_BEGINS = ("transfer_start", "compute_start")
_ENDS = ("transfer_end", "transfer_drop", "compute_end", "compute_partial", "compute_drop")
_COMPLETE = ("transfer_end", "compute_end", "compute_partial")


def scheduled(record: Record) -> Iterator[str]:
    """The log has exactly the failures of the scenario, until its last row."""
    last = record.events[-1].time
    due: set[tuple[float, str, int, str, str]] = set()
    for client, spans in crashes_of(record.failures).items():
        due |= {(time, item, client, "", "") for time, item in _turns(spans, "crash", "restart")}
    for (source, target), spans in outages_of(record.failures).items():
        due |= {(time, item, -1, source, target) for time, item in _turns(spans, "outage", "repair")}
    for event in record.of("failure"):
        row = (event.time, event.item, event.client, event.source, event.target)
        if row not in due:
            yield f"{at(event)}: the scenario has no such {event.item}"
        due.discard(row)
    for time, item, client, source, target in sorted(due):
        if time < last:
            yield f"{item} of {f'client {client}' if client >= 0 else f'{source} -> {target}'} at {time:g} s is missing"


def crashes(record: Record) -> Iterator[str]:
    """What a client has in progress ends at its crash; nothing begins, and nothing is complete, until it is back."""
    down = crashes_of(record.failures)
    begun: dict[tuple[int, int, str], Event] = {}
    for event in record.events:
        if event.kind == "dropout" and event.item == "crash" and not _within(down.get(event.client, ()), event.time):
            yield f"{at(event)}: the client has not crashed"
        if event.client not in down:
            continue
        span = _within(down[event.client], event.time)
        key = (event.client, event.flow, event.kind.partition("_")[0])
        if event.kind in _BEGINS:
            begun[key] = event
            if span is not None:
                yield f"{at(event)}: the client was down from {span[0]:g} to {span[1]:g} s"
        elif event.kind in _ENDS:
            started = begun.pop(key, event).time
            if span is not None and event.kind in _COMPLETE:
                yield f"{at(event)}: the client was down from {span[0]:g} to {span[1]:g} s"
            for began, _ in down[event.client]:
                if started < began < event.time and not close(event.time, began, clock=began):
                    yield f"{at(event)}: the client crashed at {began:g} s"


def outages(record: Record) -> Iterator[str]:
    """A link has no capacity during its outage."""
    failed = outages_of(record.failures)
    for event in record.of("capacity"):
        span = _within(failed.get((event.source, event.target), ()), event.time)
        if event.value > 0 and span is not None:
            yield f"{at(event)}: {event.source} -> {event.target} has no capacity until {span[1]:g} s"


def _turns(spans: Sequence[Span], begin: str, end: str) -> Iterator[tuple[float, str]]:
    for began, ended in spans:
        yield began, begin
        if ended < math.inf:
            yield ended, end


def _within(spans: Sequence[Span], time: float) -> Span | None:
    """The span that contains a time; its own end does not belong to it."""
    return next(((began, ended) for began, ended in spans if began <= time < ended), None)


LAWS = (scheduled, crashes, outages)
"""The invariants of this module."""
