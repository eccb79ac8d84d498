"""Devices that are away take no part, and who drops out has a reason that the seed's own draws confirm."""

from __future__ import annotations

from collections.abc import Iterator

from edgefl.fleet import Accidents, Attendance
from edgefl.simulation.invariants.record import Record, at, close
from edgefl.simulation.log import Event

_BEGINS = ("transfer_start", "compute_start")


def attendance(record: Record) -> Iterator[str]:
    """Nobody begins anything while it is away, and a device that leaves as unavailable goes at that moment."""
    there = Attendance(record.fleet, int(record.summary["seed"]))
    clients = len(record.fleet.group)
    goes: dict[int, float] = {}
    for event in record.events:
        if not 0 <= event.client < clients:
            continue
        if event.kind in _BEGINS and event.item != "prefetch":
            if not there.there(event.time)[event.client]:
                yield f"{at(event)}: the device was away"
            goes[event.client] = there.until(event.client, event.time)
        elif event.kind == "dropout" and event.item == "unavailable":
            due = goes.get(event.client, event.time)
            if not close(event.time, due) and there.there(event.time)[event.client]:
                yield f"{at(event)}: the device left, though it was there until {due:g} s"
        elif event.kind in ("compute_end", "transfer_end") and event.time > goes.get(event.client, event.time) + 1e-6:
            yield f"{at(event)}: the device had gone at {goes[event.client]:g} s"


def accidents(record: Record) -> Iterator[str]:
    """Who was to have an accident has it after its part of the computation, and nobody else does."""
    chance = Accidents(record.fleet, int(record.summary["seed"]))
    clients = len(record.fleet.group)
    computed: dict[int, Event] = {}
    for event in record.events:
        if not 0 <= event.client < clients:
            continue
        if event.kind in ("compute_end", "compute_drop"):
            computed[event.client] = event
            if event.kind == "compute_end" and chance.after(event.client, event.round - 1) < 1:
                yield f"{at(event)}: the computation ended, though the device was to drop out of it"
        elif event.kind == "dropout" and event.item == "accident":
            last = computed.get(event.client)
            if chance.after(event.client, event.round - 1) == 1:
                yield f"{at(event)}: no accident was due"
            elif last is None or last.kind != "compute_drop" or last.round != event.round:
                yield f"{at(event)}: an accident happens while a device computes"


LAWS = (attendance, accidents)
"""What is checked."""
