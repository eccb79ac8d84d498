"""Radios have the promotions and tails of their profiles, and batteries deliver no more than their charge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from edgefl.fleet import promotion_joules, tail_joules
from edgefl.fleet.battery import Charges
from edgefl.record.events import Event
from edgefl.simulation.invariants.record import Record, at, close


def radios(record: Record) -> Iterator[str]:
    """Every gap between transfers has its tail, and every transfer after a longer gap has its promotion.

    A transfer that begins when a tail ends may be before it or after it.
    """
    promoted = {(event.client, event.time) for event in record.of("radio") if event.item == "promotion"}
    due: defaultdict[tuple[int, str], float] = defaultdict(float)
    charged: defaultdict[tuple[int, str], float] = defaultdict(float)
    busy: Counter[int] = Counter()
    quiet: dict[int, float] = {}

    def end_tail(client: int, now: float) -> bool:
        """Add the tail up to now to the expected energy; True if the radio was still awake."""
        if client not in quiet:
            return False
        tail = record.fleet.profile_of(client).power.radio.tail
        gap = now - quiet.pop(client)
        due[client, "tail"] += tail_joules(record.fleet.profile_of(client), gap)
        if tail is not None and close(gap, tail.seconds, tolerance=1e-12, clock=now):
            return (client, now) not in promoted
        return tail is not None and gap < tail.seconds

    for event in record.events:
        client = event.client
        if not 0 <= client < len(record.fleet.group):
            continue
        if event.kind == "transfer_start":
            busy[client] += 1
            if busy[client] == 1 and not end_tail(client, event.time):
                due[client, "promotion"] += promotion_joules(record.fleet.profile_of(client))
        elif event.kind in ("transfer_end", "transfer_drop"):
            busy[client] -= 1
            if not busy[client]:
                quiet[client] = event.time
        elif event.kind == "dropout" and event.item == "battery":
            end_tail(client, event.time)
        elif event.kind == "radio":
            charged[client, event.item] += event.joules
    for client in list(quiet):
        end_tail(client, record.events[-1].time)
    for client, what in sorted({*due, *charged}):
        expected, found = due[client, what], charged[client, what]
        # A battery delivers at most its charge, which may be less than the expected energy.
        short = found < expected and record.fleet.profile_of(client).battery is not None
        if not short and not close(expected, found, tolerance=1e-7):
            yield f"client {client}: {what}s of its radio drew {found:g} J, its transfers give {expected:g} J"


def batteries(record: Record) -> Iterator[str]:
    """A battery that is never charged is empty when its device drops out, and never delivers more than its charge."""
    fleet = record.fleet
    charges = Charges([profile.battery for profile in fleet.profiles], fleet.group, record.summary.seed)
    if not charges.any:
        return
    drawn: defaultdict[int, float] = defaultdict(float)
    emptied: dict[int, Event] = {}
    for event in record.events:
        client = event.client
        battery = fleet.profile_of(client).battery if 0 <= client < len(fleet.group) else None
        if event.kind == "dropout" and event.item == "battery" and battery is None:
            yield f"{at(event)}: the device has no battery"
        if battery is None or battery.charging > 0 or event.kind == "work":
            continue
        drawn[client] += event.joules
        held = float(charges.joules[client])
        if event.kind == "dropout" and event.item == "battery":
            emptied[client] = event
            if not close(drawn[client], held, tolerance=1e-6):
                yield f"{at(event)}: dropped out after {drawn[client]:g} J of the {held:g} J in its battery"
        elif event.kind in ("compute_start", "transfer_start") and client in emptied:
            yield f"{at(event)}: the battery had been empty since {emptied[client].time:g} s"


LAWS = (radios, batteries)
"""The invariants of this module."""
