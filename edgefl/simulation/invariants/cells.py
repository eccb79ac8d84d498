"""If cells average: clients exchange data only with their cell, and a cell uploads after its clients."""

from __future__ import annotations

from collections.abc import Iterator

from edgefl.simulation.invariants.record import Record, at
from edgefl.simulation.protocol_specs import HierarchicalSpec


def passing_on(record: Record) -> Iterator[str]:
    """Clients exchange data with a cell, which has downloaded each part before it forwards it."""
    hierarchical = isinstance(record.protocol, HierarchicalSpec)
    carried = {event.flow: set(event.facts.get("parts", {})) for event in record.of("transfer_start")}
    fetched: dict[tuple[int, str], set[str]] = {}
    for event in record.events:
        if event.kind == "transfer_end" and event.item == "relay":
            fetched.setdefault((event.round, event.target), set()).update(carried.get(event.flow, ()))
        if event.kind != "transfer_start":
            continue
        if event.item == "relay" and not hierarchical:
            yield f"{at(event)}: a cell transfers although cells do not average"
        if hierarchical and event.client >= 0:
            if "server" in (event.source, event.target):
                yield f"{at(event)}: the client exchanges data with the server, not with its cell"
            elif event.item in ("down", "prefetch"):
                missing = carried[event.flow] - fetched.get((event.round, event.source), set())
                for part in sorted(missing):
                    yield f"{at(event)}: {event.source} forwards '{part}', which it has not downloaded"


def returning(record: Record) -> Iterator[str]:
    """Aggregated updates arrived in a cell's mean, which contains the updates that its clients had sent before."""
    if not isinstance(record.protocol, HierarchicalSpec):
        return
    gathered: dict[tuple[int, str], set[int]] = {}
    sent: dict[tuple[int, str], set[int]] = {}
    returned: dict[int, set[int]] = {}
    for event in record.events:
        down = event.source == "server"
        if event.kind == "transfer_start" and event.item == "relay" and not down:
            sent[event.round, event.source] = set(gathered.get((event.round, event.source), ()))
        elif event.kind == "transfer_end" and event.item == "relay" and not down:
            returned.setdefault(event.round, set()).update(sent.get((event.round, event.source), ()))
        elif event.kind == "transfer_end" and event.item == "up":
            gathered.setdefault((event.round, event.target), set()).add(event.client)
        elif event.kind == "aggregation":
            missing = set(event.facts.get("clients", ())) - returned.get(event.round, set())
            for client in sorted(missing):
                yield f"{at(event)}: client {client}'s cell has not returned its update"


LAWS = (passing_on, returning)
