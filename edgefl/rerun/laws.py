"""Laws of conservation that the log of every finished run obeys, whether its seconds were computed or measured.

The laws use only the run's files and its fleet, and share no code with the simulation.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgefl.fleet import DeviceProfile, Direction, FleetAssignment, compute_joules, idle_joules, transfer_joules
from edgefl.record.emulation import Emulation
from edgefl.record.events import Event
from edgefl.record.figures import QUANTITIES, Totals, figure
from edgefl.record.kinds import CONTINUED, EventKind
from edgefl.record.summary import SeedResult
from edgefl.wording import grouped

TOLERANCE = 1e-9
"""Relative difference that rounding may cause in a sum or a product of float64 numbers."""

SUM = 1e-7
"""The same for sums over a log, which are added in another order."""

Job = tuple[int, int]
"""A client and the number of its job."""


@dataclass(frozen=True)
class Record:
    """One finished run, read from its files.

    ``rounds`` are the columns of ``rounds.parquet``; ``emulation`` is None if the seconds were computed.
    """

    events: Sequence[Event]
    rounds: Mapping[str, Sequence[Any]]
    summary: SeedResult
    fleet: FleetAssignment
    emulation: Emulation | None = None
    server: DeviceProfile | None = None  # its device, if its work takes time

    @cached_property
    def by_kind(self) -> dict[EventKind, list[Event]]:
        return grouped((event.kind, event) for event in self.events)

    def of(self, *kinds: EventKind) -> Iterator[Event]:
        """Events of these kinds, in order of kinds, then of time."""
        for kind in kinds:
            yield from self.by_kind.get(kind, ())


def close(a: float, b: float, *, tolerance: float = TOLERANCE, clock: float = 0.0) -> bool:
    """True if two numbers are equal up to rounding; seconds also up to a few float increments at the time ``clock``.

    After a year the difference of two times is exact only to some nanoseconds.
    """
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=max(tolerance, 4 * math.ulp(clock)))


def at(event: Event) -> str:
    """The description of an event for violations."""
    who = f", client {event.client}" if event.client >= 0 else ""
    return f"{event.kind} at {event.time:.6f} s{who}"


def violations(record: Record) -> Iterator[str]:
    """Each violation in a run as one sentence; nothing if the log is consistent."""
    if not record.events:
        yield "the log is empty"
        return
    for law in (time, rounds_in_order, one_at_a_time, transfers, jobs, energy, server, models, sums):
        yield from law(record)


def time(record: Record) -> Iterator[str]:
    """Time never goes back, and the run stops once, for the reason in the summary."""
    now = 0.0
    for event in record.events:
        if not event.time >= now:
            yield f"{at(event)}: time goes back from {now:.6f} s"
        now = max(now, event.time)
    stops, last = list(record.of("stop")), record.events[-1]
    if len(stops) != 1 or last.kind != "stop":
        yield f"expected one stop as the last event, found {len(stops)}"
    elif last.item != record.summary.stop.reason:
        yield f"summary.json has the stop reason {record.summary.stop.reason}, the log has {last.item}"


def rounds_in_order(record: Record) -> Iterator[str]:
    """Rounds are numbered 1, 2, 3, …; each starts when the previous one has ended, and aggregates once."""
    begun = ended = aggregated = 0
    end_of_last = 0.0
    for event in record.events:
        if event.kind == "round_start":
            begun += 1
            if event.round != begun or begun != ended + 1:
                yield f"{at(event)}: round {event.round} starts after round {ended} ended"
        elif event.kind == "aggregation":
            aggregated += 1
            if event.round != aggregated or aggregated != begun:
                yield f"{at(event)}: aggregation of round {event.round} during round {begun}"
        elif event.kind == "round_end":
            ended += 1
            if event.round != ended or ended != begun:
                yield f"{at(event)}: round {event.round} ends during round {begun}"
            if not close(event.value, event.time - end_of_last, clock=event.time):
                yield f"{at(event)}: the round lasted {event.time - end_of_last:g} s, not {event.value:g} s"
            end_of_last = event.time
    failed_within = "fault" in record.by_kind and aggregated == ended + 1  # after an aggregation
    if ended != aggregated and not failed_within:
        yield f"{ended} rounds ended, {aggregated} aggregated"


def one_at_a_time(record: Record) -> Iterator[str]:
    """A client, or the server, does not compute or transfer twice at once.

    Exceptions are prefetches, broadcasts and transfers between peers.
    """
    busy: dict[int, Event] = {}
    free: dict[int, float] = {}  # since when
    for event in record.events:
        if event.kind in ("forward", "server"):  # in the log when they end
            began, last = event.time - event.seconds, free.get(event.client, 0.0)
            if event.client in busy or (began < last and not close(began, last, clock=event.time)):
                yield f"{at(event)}: another computation or transfer was in progress"
            free[event.client] = event.time
        if event.item in ("prefetch", "broadcast") or event.client < 0 or _is_between_peers(event):
            continue
        what, _, turn = event.kind.partition("_")
        if what not in ("transfer", "compute") or turn == "break":
            continue
        begun = busy.pop(event.client, None)
        if turn == "start":
            if begun is not None:
                yield f"{at(event)}: the client was busy since the {at(begun)}"
            busy[event.client] = event
            continue
        free[event.client] = event.time
        if begun is None or not begun.kind.startswith(what):
            yield f"{at(event)}: no {'transfer' if what == 'transfer' else 'computation'} was in progress"
        elif what == "compute" and not close(event.time - begun.time, event.seconds, clock=event.time):
            yield f"{at(event)}: computed for {event.time - begun.time:g} s, not {event.seconds:g} s"
    for _, event in sorted(busy.items()):
        yield f"{at(event)}: the client never ends this"


def _is_between_peers(event: Event) -> bool:
    return event.kind.startswith("transfer") and event.source[:7] == event.target[:7] == "client/"


def transfers(record: Record) -> Iterator[str]:
    """Each start has exactly one end, later, by the same client and over the same nodes, with its bytes.

    What a peer sends, its receiver receives: the same bytes at the same time.
    """
    received = {event.flow: event for event in record.of("reception")}
    under_way: dict[int, Event] = {}
    for event in record.of("transfer_start"):
        if event.flow in under_way:
            yield f"{at(event)}: transfer {event.flow} starts twice"
        under_way[event.flow] = event
    for event in record.of("transfer_end", "transfer_drop"):
        start = under_way.pop(event.flow, None)
        if start is None:
            yield f"{at(event)}: transfer {event.flow} ends without a start"
            continue
        for name in ("round", "client", "dispatch", "item", "source", "target"):
            if getattr(start, name) != getattr(event, name):
                yield f"{at(event)}: transfer {event.flow} has another {name} at its end than at its start"
        if not close(event.time - start.time, event.seconds, clock=event.time):
            yield f"{at(event)}: transfer {event.flow} took {event.time - start.time:g} s, not {event.seconds:g} s"
        if _is_between_peers(event):
            got = received.pop(event.flow, None)
            if got is None or (got.time, got.bytes, f"client/{got.client}") != (event.time, event.bytes, event.target):
                yield f"{at(event)}: transfer {event.flow} was not received as it was sent"
        least = start.bytes if event.kind == "transfer_end" else 0
        if not least <= event.bytes <= start.bytes:
            yield f"{at(event)}: transfer {event.flow} delivered {event.bytes} of {start.bytes} bytes"
    for event in received.values():
        yield f"{at(event)}: nobody sent transfer {event.flow}"
    for flow, start in sorted(under_way.items()):
        yield f"{at(start)}: transfer {flow} neither ends nor is dropped"


def jobs(record: Record) -> Iterator[str]:
    """A job is aggregated after its update has arrived, or lost with the bytes that it moved, or unfinished at the end.

    Prefetched bytes that were not used, bytes before a restart of the job, and bytes of attempts that broke are lost
    separately.
    """
    moved: defaultdict[Job, int] = defaultdict(int)
    useful, peers = 0, "reception" in record.by_kind  # who need not send to anybody
    sent: set[Job] = set()
    over: dict[Job, str] = {}
    for event in record.events:
        bytes = int(event.bytes)
        if event.kind in ("transfer_end", "transfer_drop", "reception") and event.item != "relay":
            sender = int(event.source.removeprefix("client/")) if event.kind == "reception" else event.client
            moved[sender, event.dispatch] += bytes
            if event.item == "up" and event.kind == "transfer_end":
                sent.add(event.job)
        elif event.kind == "transfer_break" and event.item != "relay":
            moved[event.job] -= bytes
        elif event.kind == "lost":
            found = moved.pop(event.job, 0)
            if event.job in over:
                yield f"{at(event)}: job {event.dispatch} of the client was already {over[event.job]}"
            if found != bytes:
                yield f"{at(event)}: moved {found} bytes for job {event.dispatch}, not {bytes}"
            if event.item not in CONTINUED:
                over[event.job] = event.item
        elif event.kind == "aggregation":
            for job in zip(event.facts.get("clients", ()), event.facts.get("dispatches", ()), strict=False):
                useful += moved.pop(job, 0)
                if job in over:
                    yield f"{at(event)}: job {job[1]} of client {job[0]} was already {over[job]}"
                if job not in sent and not peers and "missing" not in event.facts:
                    yield f"{at(event)}: client {job[0]} had sent no update of its job {job[1]}"
                over[job] = "aggregated"
    yield from _differing(record, "bytes_useful", useful)


def energy(record: Record) -> Iterator[str]:
    """Devices draw their profile's power, less while they wait for data; a battery delivers what it held and got.

    An evaluation draws the watts of the client's others on as many images, at most full load: it may wait for data.
    """
    watts = {event.work: event.joules / event.seconds for event in record.of("work") if event.seconds}
    passes = grouped(((each.client, each.images), each.joules / (each.seconds or 1.0)) for each in record.of("forward"))
    evaluating = {place: max(each) for place, each in passes.items()}
    drawn: defaultdict[int, float] = defaultdict(float)
    between: defaultdict[tuple[int, Direction], list[Event]] = defaultdict(list)
    computing: tuple[EventKind, ...] = ("compute_end", "compute_partial", "compute_drop", "forward", "secure")
    for event in record.of("transfer_end", "transfer_drop", "reception", "idle", *computing):
        if event.item == "relay":
            if event.joules:
                yield f"{at(event)}: a cell's transfer drew {event.joules:g} J, but a cell has no battery"
            continue
        if not 0 <= event.client < len(record.fleet.group):
            yield f"{at(event)}: there is no such client"
            continue
        profile = record.fleet.profile_of(event.client)
        if event.kind == "reception" or _is_between_peers(event):
            between[event.client, "up" if event.item == "up" else "down"].append(event)
            drawn[event.client] += event.joules
            continue
        if event.kind.startswith("transfer"):
            joules = transfer_joules(profile, "up" if event.item == "up" else "down", event.seconds, event.bytes)
        elif event.kind == "idle":
            joules = idle_joules(profile, event.seconds)
        else:
            full, evaluates = compute_joules(profile, 1.0), event.kind == "forward"
            most = evaluating[event.client, event.images] if evaluates else watts.get(event.work, full)
            joules = min(full, most) * event.seconds
        short = event.joules < joules and profile.battery is not None
        if not short and not close(joules, event.joules):
            yield f"{at(event)}: drew {event.joules:g} J, the profile gives {joules:g} J"
        drawn[event.client] += event.joules
    yield from _radios(record, between)
    for client, joules in drawn.items():
        if (battery := record.fleet.profile_of(client).battery) is not None:
            most = battery.capacity * battery.start.high + battery.charging * record.events[-1].time
            if joules > most * (1 + SUM):
                yield f"client {client}: its battery has given {joules:g} J, and had {most:g} J at most"


def server(record: Record) -> Iterator[str]:
    """The server draws the power of its device."""
    for event in record.of("server"):
        joules = 0.0 if record.server is None else compute_joules(record.server, event.seconds)
        if not close(joules, drew := float(event.facts.get("joules", 0.0))):
            yield f"{at(event)}: drew {drew:g} J, the profile gives {joules:g} J"


def _radios(record: Record, between: Mapping[tuple[int, Direction], Sequence[Event]]) -> Iterator[str]:
    """One radio carries all transfers to, or from, peers at one time."""
    for (client, way), events in between.items():
        profile, active, until = record.fleet.profile_of(client), 0.0, 0.0
        for start, end in sorted((event.time - event.seconds, event.time) for event in events):
            active, until = active + max(0.0, end - max(start, until)), max(until, end)
        joules = transfer_joules(profile, way, active, sum(event.bytes for event in events))
        found = sum(event.joules for event in events)
        if profile.battery is None and not close(joules, found, tolerance=SUM):
            yield f"client {client}: its transfers {way} drew {found:g} J, the profile gives {joules:g} J"


def models(record: Record) -> Iterator[str]:
    """Each aggregation begins with the model of the previous one, and evaluation reads the model of the last one.

    The log of a run without training contains no digests.
    """
    latest = next((event.facts.get("model") for event in record.of("run")), None)
    if latest is None:
        return
    for event in record.events:
        found = event.facts if event.kind in ("aggregation", "evaluation") else {}
        if event.kind == "aggregation":
            if found.get("before") != latest:
                yield f"{at(event)}: the server's model was changed outside of an aggregation, before this one"
            if not found.get("clients") and found.get("model") != found.get("before"):
                yield f"{at(event)}: nothing was aggregated, but the model changed"
            latest = found.get("model")
        elif event.kind == "evaluation" and found.get("model") != latest:
            yield f"{at(event)}: the evaluated model is not the result of the last aggregation"


def sums(record: Record) -> Iterator[str]:
    """The amounts, metrics and losses of ``rounds.parquet`` and of the summary are those of the log."""
    rows, total = [Totals()], Totals()
    known = [each for each in QUANTITIES.values() if each.is_of(record.rounds) and each.total == "sum"]
    sources = [(each.name, each.source) for each in known if each.source is not None]
    for event in record.events:
        for name, source in sources:
            if amount := source(event):
                rows[-1].charge(name, amount)
                total.charge(name, amount)
        if event.kind == "evaluation":
            loss = event.facts.get("loss")
            rows[-1] |= {"metric": event.value, "loss": float(loss) if isinstance(loss, int | float) else None}
        elif event.kind == "round_end":
            rows[-1] |= {"round": event.round, "seconds": event.time}
            rows.append(Totals())
    *rows, unfinished = rows
    table = record.rounds
    if len(table["round"]) != len(rows):
        yield f"rounds.parquet has {len(table['round'])} rows, the log {len(rows)} rounds"
        return
    for name in ("round", "seconds", "metric", "loss", *(name for name, _ in sources if name in table)):
        for number, (found, row) in enumerate(zip(table[name], rows, strict=True), 1):
            value = row.get(name) if name in ("metric", "loss") else row[name]
            if found != value and (found is None or value is None or not close(found, value, tolerance=SUM)):
                yield f"rounds.parquet, row {number}: {name} is {found}, the log gives {value}"
    for name in ("refused", "aggregated", "rounds_without_update"):  # counted when a round ends
        total[name] -= unfinished[name]
    yield from _totals(record, total | {"seconds": record.events[-1].time, "rounds": len(rows)})


def _totals(record: Record, counted: dict[str, float]) -> Iterator[str]:
    """The figures of the summary that differ from those of the log."""
    reported, most = record.summary, Totals()
    for event in record.of("transfer_end", "transfer_drop", "reception"):
        if event.client >= 0:
            most.charge(str(event.client), event.bytes)
    total = Totals(counted, client_bytes=max(most.values(), default=0), bytes_useful=reported.bytes.useful)
    for name in (*total, "bytes_wasted", "bytes_unfinished"):
        yield from _differing(record, name, total[name])
    if evaluations := [event.value for event in record.of("evaluation")]:
        for name, value in (("final", evaluations[-1]), ("best", reported.metric.metric.best(*evaluations))):
            if value != getattr(reported.metric, name):
                yield f"metric.{name}: summary.json has {getattr(reported.metric, name)}, the log {value}"
    if record.emulation is not None:  # its interfaces carried at least the bytes of the transfers
        for name in ("down", "up"):
            found, delivered = getattr(record.emulation.wire_bytes, name), int(total[f"bytes_{name}"])
            if found < delivered:
                yield f"wire_bytes.{name}: emulation.json has {found}, the log's transfers delivered {delivered}"


def _differing(record: Record, name: str, expected: float) -> Iterator[str]:
    quantity = QUANTITIES[name]
    found = figure(record.summary, quantity)
    if found is not None and not close(found, expected, tolerance=0.0 if quantity.whole_number else SUM):
        yield f"{quantity.place}: summary.json has {found}, the log gives {expected}"
