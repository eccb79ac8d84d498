"""Where cells average: clients deal with their cell alone, and a cell returns after its clients have."""

from __future__ import annotations

from collections.abc import Iterator

from edgefl.simulation.invariants.record import Record, at, facts
from edgefl.simulation.protocol_specs import HierarchicalSpec


def passing_on(record: Record) -> Iterator[str]:
    """Clients deal with a cell, which has fetched what it passes on."""
    hierarchical = isinstance(record.protocol, HierarchicalSpec)
    fetched: set[tuple[int, str]] = set()
    for event in record.events:
        if event.kind == "transfer_end" and event.item == "relay":
            fetched.add((event.round, event.target))
        if event.kind != "transfer_start":
            continue
        if event.item == "relay" and not hierarchical:
            yield f"{at(event)}: a cell transfers although cells do not average"
        if hierarchical and event.client >= 0:
            if "server" in (event.source, event.target):
                yield f"{at(event)}: the client deals with the server, not with its cell"
            elif event.item == "down" and (event.round, event.source) not in fetched:
                yield f"{at(event)}: {event.source} passes on what it has not fetched"


def returning(record: Record) -> Iterator[str]:
    """What is aggregated came with a cell's mean, which holds what its clients had sent by then."""
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
            missing = set(facts(event).get("clients", ())) - returned.get(event.round, set())
            for client in sorted(missing):
                yield f"{at(event)}: client {client}'s cell has not returned its update"


LAWS = (passing_on, returning)
