"""Absent devices do not participate, and each dropout has a reason that matches the seed's draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from edgefl.fleet import Accidents, Attendance
from edgefl.simulation.invariants.computing import computations
from edgefl.simulation.invariants.record import Record, at, close

_BEGINS = ("transfer_start", "compute_start")


def attendance(record: Record) -> Iterator[str]:
    """No client starts a transfer or computation while absent, and unavailable devices drop out on time."""
    there = Attendance(record.fleet, record.summary.seed)
    clients = len(record.fleet.group)
    goes: dict[int, float] = {}
    for event in record.events:
        if not 0 <= event.client < clients:
            continue
        if event.kind in _BEGINS and event.item not in ("prefetch", "broadcast"):
            if not there.there(event.time)[event.client]:
                yield f"{at(event)}: the device was absent"
            goes[event.client] = there.until(event.client, event.time)
        elif event.kind == "dropout" and event.item == "unavailable":
            due = goes.get(event.client, event.time)
            if not close(event.time, due) and there.there(event.time)[event.client]:
                yield f"{at(event)}: the device left, but it was available until {due:g} s"
        elif event.kind in ("compute_end", "transfer_end") and event.time > goes.get(event.client, event.time) + 1e-6:
            yield f"{at(event)}: the device had left at {goes[event.client]:g} s"


def accidents(record: Record) -> Iterator[str]:
    """Exactly the computations selected by the draws have an accident, after the drawn share of their duration."""
    chance = Accidents(record.fleet, record.summary.seed)
    clients = len(record.fleet.group)
    accident = {(event.client, event.time): event for event in record.of("dropout") if event.item == "accident"}
    for each in computations(record):
        event = each.end
        if not 0 <= event.client < clients:
            continue
        after = chance.after(event.client, event.round - 1, each.again)
        if event.kind != "compute_drop":
            if after < 1:
                yield f"{at(event)}: the computation ended, but an accident was due during it"
        elif (happened := accident.pop((event.client, event.time), None)) is not None:
            if after == 1:
                yield f"{at(happened)}: no accident was due"
            elif not close(event.seconds, after * each.planned_seconds, clock=event.time):
                due = after * each.planned_seconds
                yield f"{at(happened)}: the accident was due after {due:g} s, not after {event.seconds:g} s"
    for happened in accident.values():
        yield f"{at(happened)}: the accident is not during a computation"


def new_attempts(record: Record) -> Iterator[str]:
    """A client restarts its job only after an accident, and at most as often as the protocol allows."""
    restarts: Counter[tuple[int, int]] = Counter()
    accident: set[tuple[int, float]] = set()
    for event in record.events:
        if event.kind == "dropout" and event.item == "accident":
            accident.add((event.client, event.time))
        elif event.kind == "lost" and event.item == "retried":
            restarts[event.job] += 1
            if (event.client, event.time) not in accident:
                yield f"{at(event)}: restarts job {event.dispatch} without an accident"
            if restarts[event.job] == record.protocol.retries + 1:
                yield f"{at(event)}: restarts job {event.dispatch} more than {record.protocol.retries} times"


LAWS = (attendance, accidents, new_attempts)
"""The invariants of this module."""
