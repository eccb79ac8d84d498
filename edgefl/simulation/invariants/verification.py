"""All invariants together, and those that hold for computed seconds only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgefl.simulation.invariants import (
    breaks,
    cells,
    connections,
    course,
    deadlines,
    devices,
    failures,
    models,
    power,
    presence,
    ranges,
    totals,
    traffic,
    transfers,
)
from edgefl.simulation.invariants.record import Record

Law = Callable[[Record], Iterator[str]]

_FAMILIES = (
    ranges,
    course,
    deadlines,
    cells,
    transfers,
    breaks,
    connections,
    devices,
    power,
    presence,
    failures,
    traffic,
    totals,
    models,
)

COMPUTED_ONLY: dict[Law, str] = {
    course.seamless: "the server needs time between two rounds",
    deadlines.deadlines: "an abort takes effect some time after the deadline",
    deadlines.adaptive: "durations count from moments that have no row",
    transfers.fair: "rates are those of real connections, not max-min fair",
    breaks.waits: "a repeated attempt begins some time after its wait",
    breaks.expiry: "a time-out takes effect some time after it expires",
    breaks.giving_up: "a client drops out some time after its transfer has failed",
    connections.opened: "set-up and windows are those of real connections",
    devices.paces: "training ends some time after the seconds of the device's profile, or takes its own time",
    power.radios: "promotions and tails start some time after the transfers",
    power.batteries: "a device drops out some time after its battery is empty",
    presence.attendance: "a device leaves some time after it becomes unavailable",
    presence.accidents: "an accident happens some time after its drawn moment",
    presence.new_attempts: "a job restarts some time after its accident",
}
"""The laws of the simulated clock, which no real world obeys exactly, each with the reason.

An emulated run is checked with all other laws: the order of its phases, its bytes with their fates, sums, joules,
aggregations, metrics and the digests of its models.
"""


def laws(record: Record) -> Iterator[Law]:
    """The laws that apply to a run."""
    for family in _FAMILIES:
        for law in family.LAWS:
            if record.emulation is None or law not in COMPUTED_ONLY:
                yield law


def violations(record: Record) -> Iterator[str]:
    """Yield each violation in a run as one sentence; nothing if the log is consistent."""
    if not record.events:
        yield "the log is empty"
        return
    for law in laws(record):
        yield from law(record)
