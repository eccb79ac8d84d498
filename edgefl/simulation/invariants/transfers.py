"""Every transfer ends or is dropped, delivers its bytes, and gets its fair share of its links."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from edgefl.fleet import Direction, transfer_joules
from edgefl.network import Topology
from edgefl.network.audit import audit_flows
from edgefl.network.audit_records import FlowRecord, Repetition, merged
from edgefl.record.events import Event
from edgefl.simulation.allocation import Allocation, read_outlook
from edgefl.simulation.invariants.connections import logged_opening
from edgefl.simulation.invariants.record import Record, at, close


def paired(record: Record) -> Iterator[str]:
    """Each start has exactly one end, later, by the same client and over the same nodes."""
    starts: dict[int, Event] = {}
    ended: set[int] = set()
    for event in record.of("transfer_start"):
        if event.flow in starts:
            yield f"{at(event)}: transfer {event.flow} starts twice"
        starts[event.flow] = event
        parts = event.facts.get("parts", {})
        if sum(parts.values()) != event.bytes:
            yield f"{at(event)}: transfer {event.flow} carries parts of {sum(parts.values())} bytes, not {event.bytes}"
    for event in record.of("transfer_end", "transfer_drop"):
        start = starts.get(event.flow)
        if start is None:
            yield f"{at(event)}: transfer {event.flow} ends without a start"
            continue
        if event.flow in ended:
            yield f"{at(event)}: transfer {event.flow} ends twice"
        ended.add(event.flow)
        same = ("round", "client", "dispatch", "item", "source", "target")
        for name in same:
            if getattr(start, name) != getattr(event, name):
                yield f"{at(event)}: transfer {event.flow} has another {name} at its end than at its start"
        if not close(event.time - start.time, event.seconds, clock=event.time):
            yield f"{at(event)}: transfer {event.flow} took {event.time - start.time:g} s, not {event.seconds:g} s"
        if event.kind == "transfer_end" and event.bytes != start.bytes:
            yield f"{at(event)}: transfer {event.flow} delivered {event.bytes} of {start.bytes} bytes"
        if not 0 <= event.bytes <= start.bytes:
            yield f"{at(event)}: transfer {event.flow} delivered {event.bytes} of {start.bytes} bytes"
    for flow in sorted(set(starts) - ended):
        yield f"{at(starts[flow])}: transfer {flow} neither ends nor is dropped"


def progress(record: Record) -> Iterator[str]:
    """Only real links are asked for the progress of a transfer; it is in progress then, and not beyond its size."""
    if "progress" not in record.by_kind:
        return
    sizes: dict[int, float] = {}
    for event in record.events:
        if event.kind == "transfer_start":
            sizes[event.flow] = event.bytes
        elif event.kind in ("transfer_end", "transfer_drop"):
            sizes.pop(event.flow, None)
        elif event.kind == "progress":
            if record.emulation is None:
                yield f"{at(event)}: the progress of transfer {event.flow} was measured, but its run is no emulation"
            elif event.flow not in sizes:
                yield f"{at(event)}: transfer {event.flow} is not in progress"
            elif event.bytes > sizes[event.flow]:
                yield f"{at(event)}: {event.bytes} of {sizes[event.flow]} bytes of transfer {event.flow} have arrived"


def energy(record: Record) -> Iterator[str]:
    """A transfer draws the energy of the client's radio for its seconds and bytes."""
    for event in record.of("transfer_end", "transfer_drop"):
        if event.item == "relay":
            if event.joules:
                yield f"{at(event)}: a cell's transfer drew {event.joules:g} J, but a cell has no battery"
            continue
        if not 0 <= event.client < len(record.fleet.group):
            yield f"{at(event)}: there is no such client"
            continue
        profile = record.fleet.profile_of(event.client)
        direction: Direction = "up" if event.item == "up" else "down"
        joules = transfer_joules(profile, direction, event.seconds, event.bytes)
        short = event.joules < joules and profile.battery is not None
        if not short and not close(joules, event.joules):
            yield f"{at(event)}: drew {event.joules:g} J, the profile gives {joules:g} J"


def fair(record: Record) -> Iterator[str]:
    """No link carries more than its capacity, and the duration of every transfer follows from max-min fair sharing."""
    ends = {event.flow: event for event in record.of("transfer_end", "transfer_drop")}
    groups: dict[tuple[str, int], list[FlowRecord]] = {}
    for start in record.of("transfer_start"):
        end, details = ends.get(start.flow), start.facts
        path, connection = details.get("path", []), details.get("connection", {})
        if end is None or len(path) < 2:
            continue
        flow = FlowRecord(
            flow=start.flow,
            path=tuple(itertools.pairwise(path)),
            bytes=float(start.bytes),
            started=start.time,
            ended=end.time,
            cancelled=end.kind == "transfer_drop",
            delivered=float(end.bytes),
            latency=start.value,
            ends=(path[0], path[-1]),
            setup=float(connection.get("setup", 0.0)),
            opening=logged_opening(connection) if connection else None,
            losses=tuple(end.facts.get("losses", ())),
            outlook=read_outlook(details["outlook"]) if "outlook" in details else None,
        )
        group = ("multicast", details["multicast"]) if "multicast" in details else ("flow", start.flow)
        groups.setdefault(group, []).append(flow)
    flows = [members[0] if kind == "flow" else merged(members) for (kind, _), members in groups.items()]
    changes = [(event.time, (event.source, event.target), event.value) for event in record.of("capacity")]
    links = record.topology
    for violation in audit_flows(
        changes,
        flows,
        air={_names(links, link): links.air(link) for link in range(len(links.capacity)) if links.air(link) >= 0},
        airtime_fair=links.airtime_fair,
        transport=record.transport,
        allocator=None if record.bandwidth is None else Allocation(record.bandwidth, "of the run"),
        repetitions=[
            Repetition(float(event.facts["since"]), event.seconds, int(event.value), event.time)
            for event in record.of("repetition")
        ],
    ):
        yield f"at {violation.seconds:.6f} s, transfer {violation.flow}: {violation.message}"


def _names(links: Topology, link: int) -> tuple[str, str]:
    source, target = links.ends(link)
    return str(source), str(target)


LAWS = (paired, progress, energy, fair)
