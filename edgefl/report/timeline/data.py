"""A run's transfers, computations and rounds, assembled from the rows of its event log."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from edgefl.record import SeedPaths
from edgefl.record.events import Event
from edgefl.record.kinds import CONTINUED
from edgefl.record.tables import read_events
from edgefl.wording import grouped


class Transfer(NamedTuple):
    """One flow; the names are those of the event log."""

    client: int  # -1 for a relay between the server and a cell
    round: int
    dispatch: int
    item: str  # down, up, prefetch, broadcast or relay
    flow: int
    path: tuple[str, ...]
    latency: float  # seconds before the flow uses any bandwidth, setup of them for its connection
    started: float
    ended: float
    bytes: int
    whole: bool  # false if it was aborted
    joules: float
    setup: float = 0.0
    tcp: bool = False  # whether it used a TCP connection, whose round trips and window can limit its rate

    @property
    def job(self) -> tuple[int, int]:
        return self.client, self.dispatch

    @property
    def up(self) -> bool:
        """Whether its direction is towards the server."""
        return self.item == "up" or (self.item == "relay" and self.path[0] != "server")

    @property
    def links(self) -> list[tuple[str, str]]:
        """The links of its path."""
        return list(zip(self.path, self.path[1:], strict=False))

    @property
    def bits_per_second(self) -> float:
        """Its mean rate after the latency; 0 if it ended within the latency."""
        seconds = self.ended - self.started - self.latency
        return 8.0 * self.bytes / seconds if seconds > 0 else 0.0


class Computation(NamedTuple):
    """One client's local training in one round; ``whole`` is false if it had fewer steps or was aborted."""

    client: int
    round: int
    dispatch: int
    alpha: int
    started: float
    ended: float
    flops: float
    joules: float
    whole: bool

    @property
    def job(self) -> tuple[int, int]:
        return self.client, self.dispatch


class Framework(NamedTuple):
    """The framework's time (``round_overhead``) before a client trains, or before it sends."""

    client: int
    round: int
    started: float
    ended: float


class Round(NamedTuple):
    """One round that ended."""

    number: int
    began: float
    ended: float
    critical: int  # the client that closed it with its job dispatch, -1 if a deadline closed it
    dispatch: int
    # exposed, hidden: seconds of that client's transfers that did, and did not, lengthen the round
    exposed: float
    hidden: float
    aggregated: tuple[int, ...]
    server: float = 0.0  # seconds at its end in which the server computed
    evaluation: float = 0.0  # seconds at its end in which clients evaluated its model


class Broken(NamedTuple):
    """A flow that broke: the bytes of it that were not kept, and the seconds until the next attempt."""

    bytes: int
    wait: float


@dataclass
class Timeline:
    """The timeline of one method with one seed."""

    transfers: list[Transfer] = field(default_factory=list)
    computations: list[Computation] = field(default_factory=list)
    # by the number of a transfer between peers, the client that received it
    receptions: dict[int, int] = field(default_factory=dict)
    frameworks: list[Framework] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    # for each job (client, dispatch) with a transfer, useful or the reason why it was wasted; jobs that are missing
    # here had not ended when the log ended
    fates: dict[tuple[int, int], str] = field(default_factory=dict)
    # the fate of single flows that differs from their job's: prefetched_in_vain, retried
    own_fates: dict[int, str] = field(default_factory=dict)
    broken: dict[int, Broken] = field(default_factory=dict)  # the flows that broke
    # when each job started whose client was selected in advance and received data in advance
    sent_off: dict[tuple[int, int], float] = field(default_factory=dict)
    # each client's kind of device and the name of its profile, if it ever computed or was refused
    groups: dict[int, tuple[int, str]] = field(default_factory=dict)
    # by the name of each device with local training, the bytes of memory that it needs, and whether the device has them
    memory: dict[str, tuple[float, bool]] = field(default_factory=dict)
    cohorts: dict[int, list[int]] = field(default_factory=dict)  # for each round the selected clients
    # for each round with a choice of blocks, the number of blocks sent to each client
    alphas: dict[int, dict[int, int]] = field(default_factory=dict)
    # for each link, the times of its capacity changes and the capacities in bit/s
    capacities: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    # for each client and link that failed, when it began to fail and when it worked again (infinite: never); clients
    # as client 3, links as internet → client/3
    failures: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    # the energy of each client, by transfer, compute, idle and radio
    joules: dict[int, dict[str, float]] = field(default_factory=dict)
    ended: float = 0.0  # virtual seconds at the end

    def fate_of(self, transfer: Transfer) -> str:
        """Whether the bytes of a transfer were useful, or why they were wasted."""
        return self.own_fates.get(transfer.flow) or self.fates.get(transfer.job, "unfinished")

    def end_of(self, transfer: Transfer) -> float:
        """When a transfer ended; the wait for the next attempt is a part of it."""
        broken = self.broken.get(transfer.flow)
        return transfer.ended if broken is None else transfer.ended + broken.wait

    def device_of(self, client: int) -> str:
        """The client's device profile; a dash if the log does not contain it."""
        return self.groups[client][1] if client in self.groups else "–"


def read_timeline(folder: Path) -> Timeline:
    """The timeline of one method and seed, from the folder of its ``events.parquet``."""
    return timeline_of(read_events(SeedPaths(folder).events))


def timeline_of(events: Iterable[Event]) -> Timeline:
    """The timeline of these rows of an event log."""
    timeline, selected = Timeline(), dict[tuple[int, int], float]()
    read = _reader(timeline, selected)
    for event in events:
        read(event)
        if event.joules and event.client >= 0:
            drawn = timeline.joules.setdefault(event.client, defaultdict(float))
            kind = "transfer" if event.kind == "reception" else event.kind.split("_", 1)[0]
            drawn[kind] += event.joules
        timeline.ended = max(timeline.ended, event.time)
    timeline.frameworks = list(_frameworks(timeline, selected))
    return timeline


LEAST_SECONDS = 1e-6
"""Shorter gaps in a participation are rounding."""


def _frameworks(timeline: Timeline, selected: Mapping[tuple[int, int], float]) -> Iterator[Framework]:
    """The gaps before and after each computation: from all that it waits for, and until its update is sent.

    ``selected`` is when each client was selected in a round; one that is asked for its loss has the model before.
    """
    began = {each.number: each.began for each in timeline.rounds}
    last = {each.job: each for each in timeline.computations}  # after an accident there are several
    moved = grouped((each.job, each) for each in timeline.transfers if each.item in ("down", "up", "prefetch"))
    for each in [] if timeline.receptions else timeline.computations:  # peers wait for each other
        own = moved.get(each.job, [])
        received = [of.ended for of in own if not of.up and of.ended <= each.started]
        ready = [*received, selected.get((each.round, each.client), 0.0), timeline.sent_off.get(each.job, 0.0)]
        sent = [of.started for of in own if of.up and of.started >= each.ended and each is last[each.job]]
        spans = [(max(ready) if received else began.get(each.round, each.started), each.started)]
        spans += [(each.ended, min(sent))] if sent else []
        for start, end in spans:
            if end - start > LEAST_SECONDS:
                yield Framework(each.client, each.round, start, end)


def _reader(timeline: Timeline, selected: dict[tuple[int, int], float]) -> Callable[[Event], None]:  # noqa: PLR0915
    """A function that adds a row of a log to a timeline, and to the seconds at which clients were selected."""
    starts: dict[int, Event] = {}
    moved: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    aggregated: tuple[int, ...] = ()

    def read(event: Event) -> None:  # noqa: PLR0912, PLR0915  (a branch for each kind of row)
        nonlocal aggregated
        client, round, ended = event.client, event.round, event.time
        job, span = (client, round, event.dispatch), (ended - event.seconds, ended)
        whole = event.kind in ("transfer_end", "compute_end")
        match event.kind:
            case "transfer_start":
                starts[event.flow] = event
            case "transfer_end" | "transfer_drop":
                moved[event.job].append(event.flow)
                start = starts.pop(event.flow, event)
                facts = start.facts
                path = tuple(facts.get("path") or (event.source, event.target))
                setup, tcp = float(facts.get("connection", {}).get("setup", 0.0)), "connection" in facts
                flow = (*job, event.item, event.flow, path, start.value, *span, int(event.bytes), whole)
                timeline.transfers.append(Transfer(*flow, event.joules, setup, tcp))
            case "reception":
                timeline.receptions[event.flow] = client
            case "transfer_break":
                timeline.broken[event.flow] = Broken(int(event.bytes), event.seconds)
            case "work":
                needs, has = timeline.memory.get(event.item, (0.0, True))
                timeline.memory[event.item] = max(needs, event.bytes), has and bool(event.facts.get("fits", True))
            case "compute_start" | "refused":
                timeline.groups.setdefault(client, (event.group, event.item))
            case "compute_end" | "compute_partial" | "compute_drop":
                found = Computation(*job, event.alpha, *span, event.flops, event.joules, whole)
                timeline.computations.append(found)
            case "dispatch":
                timeline.sent_off[event.job] = ended
            case "lost":
                flows = moved.pop(event.job, [])
                if event.item in CONTINUED:
                    timeline.own_fates.update(dict.fromkeys(flows, event.item))
                else:
                    timeline.fates[event.job] = event.item
            case "aggregation":
                aggregated = tuple(event.facts.get("clients", ()))
                jobs = zip(aggregated, event.facts.get("dispatches", ()), strict=False)
                timeline.fates.update(dict.fromkeys(jobs, "useful"))
            case "round_end":
                facts = event.facts
                names = ("exposed", "hidden", "server", "evaluation")
                exposed, hidden, *last = (float(facts.get(f"{name}_seconds", 0.0)) for name in names)
                closed = (client, event.dispatch, exposed, hidden, aggregated)
                timeline.rounds.append(Round(round, ended - event.value, ended, *closed, *last))
            case "decision" if event.item == "blocks":
                chosen = {int(each): int(alpha) for each, alpha in event.facts.get("alphas", {}).items()}
                timeline.alphas.setdefault(round, {}).update(chosen)
            case "decision" if event.item == "selection":
                timeline.cohorts.setdefault(round, []).extend(clients := event.facts.get("clients", ()))
                selected.update(dict.fromkeys(((round, each) for each in clients), ended))
            case "failure":
                what = f"{event.source} → {event.target}" if client < 0 else f"client {client}"
                spans = timeline.failures.setdefault(what, [])
                if event.item in ("crash", "outage"):
                    spans.append((ended, math.inf))
                elif spans:
                    spans[-1] = (spans[-1][0], ended)
            case "capacity":
                timeline.capacities.setdefault((event.source, event.target), []).append((ended, event.value))

    return read
