"""A run's transfers, computations and rounds, assembled from the rows of its event log."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgefl.errors import UserError
from edgefl.record import SeedPaths
from edgefl.record.kinds import CONTINUED
from edgefl.wording import with_article

if TYPE_CHECKING:
    from edgefl.record.events import Event


class Transfer(NamedTuple):
    """One flow.

    Attributes:
        client: the client that receives or sends; -1 for a relay between the server and a cell.
        dispatch: the index of the client's job to which it belongs.
        item: ``down``, ``up``, ``prefetch``, ``broadcast`` or ``relay``.
        path: the nodes of its path, first to last.
        latency: seconds before the flow uses any bandwidth.
        bytes: delivered bytes.
        whole: false if it was aborted.
        setup: the part of the latency for setting up its connection.
        tcp: whether it used a TCP connection, whose round trips, window and losses can limit its rate.
    """

    client: int
    round: int
    dispatch: int
    item: str
    flow: int
    path: tuple[str, ...]
    latency: float
    started: float
    ended: float
    bytes: int
    whole: bool
    joules: float
    setup: float = 0.0
    tcp: bool = False

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


class Round(NamedTuple):
    """One round that ended.

    Attributes:
        critical: the client that closed it, -1 if a deadline closed it.
        dispatch: the index of that client's job.
        exposed, hidden: seconds of that client's transfers that did, and did not, lengthen the round.
        aggregated: the clients whose updates were aggregated.
    """

    number: int
    began: float
    ended: float
    critical: int
    dispatch: int
    exposed: float
    hidden: float
    aggregated: tuple[int, ...]


class Broken(NamedTuple):
    """A flow that broke: the bytes of it that were not kept, and the seconds until the next attempt."""

    bytes: int
    wait: float


@dataclass
class Timeline:
    """The timeline of one method with one seed.

    Attributes:
        fates: for each job (client, dispatch) with a transfer, ``useful`` or the reason why it was wasted; jobs that
            are missing here had not ended when the log ended.
        own_fates: the fate of single flows that differs from their job's: ``prefetched_in_vain``, ``retried``.
        broken: the flows that broke.
        sent_off: when each job started whose client was selected in advance and received data in advance.
        groups: each client's kind of device and the name of its profile, if it ever computed or was refused.
        cohorts: for each round the selected clients.
        alphas: for each round with a choice of blocks, the number of blocks sent to each client.
        capacities: for each link, the times of its capacity changes and the capacities in bit/s.
        failures: for each client and link that failed, when it began to fail and when it worked again (infinite:
            never); clients as ``client 3``, links as ``internet → client/3``.
        joules: the energy of each client, by ``transfer``, ``compute``, ``idle`` and ``radio``.
        ended: virtual seconds at the end.
    """

    transfers: list[Transfer] = field(default_factory=list)
    computations: list[Computation] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    fates: dict[tuple[int, int], str] = field(default_factory=dict)
    own_fates: dict[int, str] = field(default_factory=dict)
    broken: dict[int, Broken] = field(default_factory=dict)
    sent_off: dict[tuple[int, int], float] = field(default_factory=dict)
    groups: dict[int, tuple[int, str]] = field(default_factory=dict)
    cohorts: dict[int, list[int]] = field(default_factory=dict)
    alphas: dict[int, dict[int, int]] = field(default_factory=dict)
    capacities: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    failures: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    joules: dict[int, dict[str, float]] = field(default_factory=dict)
    ended: float = 0.0

    def fate_of(self, transfer: Transfer) -> str:
        """Whether the bytes of a transfer were useful, or why they were wasted."""
        job = (transfer.client, transfer.dispatch)
        return self.own_fates.get(transfer.flow) or self.fates.get(job, "unfinished")

    def device_of(self, client: int) -> str:
        """The client's device profile; a dash if the log does not contain it."""
        return self.groups[client][1] if client in self.groups else "–"


def read_timeline(folder: Path) -> Timeline:
    """The timeline of one method and seed.

    Args:
        folder: the folder that contains its ``events.parquet``.
    """
    from edgefl.record.tables import read_events  # imports pyarrow

    file = SeedPaths(folder).events
    try:
        return timeline_of(read_events(file))
    except UserError as error:
        raise error.located(file=str(file)) from None


def timeline_of(events: Iterable[Event]) -> Timeline:
    """The timeline of these rows of an event log."""
    timeline = Timeline()
    reader = _Reader(timeline)
    for event in events:
        try:
            reader.read(event)
        except (ValueError, TypeError, AttributeError, OverflowError):
            message = f"expected the facts of {with_article(event.kind)} in round {event.round}, found others"
            raise UserError(message, field="detail") from None
        if event.joules and event.client >= 0:
            drawn = timeline.joules.setdefault(event.client, defaultdict(float))
            drawn[event.kind.split("_", 1)[0]] += event.joules
        timeline.ended = max(timeline.ended, event.time)
    return timeline


class _Reader:
    """Adds the rows of a log to a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._flows: dict[int, Event] = {}
        self._moved: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self._aggregated: tuple[int, ...] = ()

    def read(self, event: Event) -> None:  # noqa: PLR0912  (a branch for each kind of row)
        """Add one row."""
        timeline = self.timeline
        match event.kind:
            case "transfer_start":
                self._flows[event.flow] = event
            case "transfer_end" | "transfer_drop":
                self._transfer(event, whole=event.kind == "transfer_end")
            case "transfer_break":
                timeline.broken[event.flow] = Broken(int(event.bytes), event.seconds)
            case "compute_start" | "refused":
                timeline.groups.setdefault(event.client, (event.group, event.item))
            case "compute_end" | "compute_partial" | "compute_drop":
                self._computation(event, whole=event.kind == "compute_end")
            case "dispatch":
                timeline.sent_off[event.job] = event.time
            case "lost":
                moved = self._moved.pop(event.job, [])
                if event.item in CONTINUED:
                    timeline.own_fates.update(dict.fromkeys(moved, event.item))
                else:
                    timeline.fates[event.job] = event.item
            case "aggregation":
                self._aggregated = tuple(event.facts.get("clients", ()))
                for job in zip(self._aggregated, event.facts.get("dispatches", ()), strict=False):
                    timeline.fates[job] = "useful"
            case "round_end":
                self._round(event)
            case "decision" if event.item == "blocks":
                chosen = {int(client): int(alpha) for client, alpha in event.facts.get("alphas", {}).items()}
                timeline.alphas.setdefault(event.round, {}).update(chosen)
            case "decision" if event.item == "selection":
                timeline.cohorts.setdefault(event.round, []).extend(event.facts.get("clients", ()))
            case "failure":
                what = f"{event.source} → {event.target}" if event.client < 0 else f"client {event.client}"
                spans = timeline.failures.setdefault(what, [])
                if event.item in ("crash", "outage"):
                    spans.append((event.time, math.inf))
                elif spans:
                    spans[-1] = (spans[-1][0], event.time)
            case "capacity":
                link = timeline.capacities.setdefault((event.source, event.target), [])
                link.append((event.time, event.value))

    def _transfer(self, event: Event, *, whole: bool) -> None:
        start = self._flows.pop(event.flow, event)
        facts = start.facts
        self._moved[event.job].append(event.flow)
        self.timeline.transfers.append(
            Transfer(
                client=event.client,
                round=event.round,
                dispatch=event.dispatch,
                item=event.item,
                flow=event.flow,
                path=tuple(facts.get("path") or (event.source, event.target)),
                latency=start.value,
                started=event.time - event.seconds,
                ended=event.time,
                bytes=int(event.bytes),
                whole=whole,
                joules=event.joules,
                setup=float(facts.get("connection", {}).get("setup", 0.0)),
                tcp="connection" in facts,
            )
        )

    def _computation(self, event: Event, *, whole: bool) -> None:
        started = event.time - event.seconds
        self.timeline.computations.append(
            Computation(
                client=event.client,
                round=event.round,
                dispatch=event.dispatch,
                alpha=event.alpha,
                started=started,
                ended=event.time,
                flops=event.flops,
                joules=event.joules,
                whole=whole,
            )
        )

    def _round(self, event: Event) -> None:
        facts = event.facts
        self.timeline.rounds.append(
            Round(
                number=event.round,
                began=event.time - event.value,
                ended=event.time,
                critical=event.client,
                dispatch=event.dispatch,
                exposed=float(facts.get("exposed_seconds", 0.0)),
                hidden=float(facts.get("hidden_seconds", 0.0)),
                aggregated=self._aggregated,
            )
        )
