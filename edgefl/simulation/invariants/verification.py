"""All invariants together."""

from __future__ import annotations

from collections.abc import Iterator

from edgefl.simulation.invariants import (
    breaks,
    cells,
    connections,
    course,
    deadlines,
    devices,
    models,
    power,
    presence,
    ranges,
    totals,
    traffic,
    transfers,
)
from edgefl.simulation.invariants.record import Record


def violations(record: Record) -> Iterator[str]:
    """Yield each violation in a run as one sentence; nothing if the log is consistent."""
    if not record.events:
        yield "the log is empty"
        return
    for family in (
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
        traffic,
        totals,
        models,
    ):
        for law in family.LAWS:
            yield from law(record)
