"""Which clients can take part, and which drop out during a round: availability, crashes, and outages of links."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Discriminator, Field, Tag

from edgefl.data.attackers import Malicious
from edgefl.errors import locating
from edgefl.fleet import Accidents, Attendance, FleetAssignment
from edgefl.fleet.availability import joined
from edgefl.network.flow import Network
from edgefl.network.topology import Topology
from edgefl.options import Options
from edgefl.record.events import EventLog
from edgefl.simulation.clock import Clock
from edgefl.simulation.power import Power
from edgefl.units import Seconds, at_most

Span = tuple[float, float]
"""Begin and end in virtual seconds; the end may be infinite."""


class _Failure(Options):
    at: Seconds = Field(description="Time of the run at which it begins.")
    duration: Seconds | None = Field(None, gt=0, description="How long it lasts; null: to the end.")

    @property
    def span(self) -> Span:
        return self.at, math.inf if self.duration is None else self.at + self.duration


class Crash(_Failure):
    """The process of a client ends, and begins again later."""

    kind: Literal["crash"] = Field(description="crash: the process of a client ends, and begins again later")
    client: int = Field(ge=0, description="The client.")


class Outage(_Failure):
    """A link has no capacity for some time, whatever capacity it would have otherwise."""

    kind: Literal["outage"] = Field(description="outage: a link has no capacity")
    link: tuple[str, str] = Field(description="Its two nodes, neighbours in the topology: [internet, client/3].")
    one_way: bool = Field(False, description="true: only from the first node to the second; false: both directions.")

    @property
    def directions(self) -> list[tuple[str, str]]:
        return [self.link] if self.one_way else [self.link, self.link[::-1]]


Failure = Annotated[Crash | Outage, Field(discriminator="kind")]
"""A failure at a given time."""


def kind(entry: Any) -> Any:
    """The kind of an entry, which an attack has under the key ``malicious``."""
    named = "malicious" in entry if isinstance(entry, Mapping) else isinstance(entry, Malicious)
    return "malicious" if named else entry.get("kind") if isinstance(entry, Mapping) else getattr(entry, "kind", None)


_Entry = Annotated[
    Annotated[Crash, Tag("crash")] | Annotated[Outage, Tag("outage")] | Annotated[Malicious, Tag("malicious")],
    Discriminator(kind),
]

Failures = Annotated[tuple[_Entry, ...], BeforeValidator(lambda it: [it] if isinstance(it, Mapping) else it)]
"""A scenario's ``failures``: a list, or one entry."""


def timed(failures: Iterable[object]) -> tuple[Crash | Outage, ...]:
    """Those at given times."""
    return tuple(each for each in failures if isinstance(each, Crash | Outage))


def check_outages(failures: Sequence[object], topology: Topology) -> None:
    """Check that the network has every link that fails."""
    for index, each in enumerate(failures):
        for source, target in each.directions if isinstance(each, Outage) else ():
            with locating(field=f"failures.{index}.link"):
                topology.link(source, target)


def spans_of(failures: Iterable[object], kind: type[Crash | Outage]) -> dict[Any, list[Span]]:
    """When each client that crashes is down, or when each directed link that fails has no capacity."""
    spans: defaultdict[Any, list[Span]] = defaultdict(list)
    for each in failures:
        if isinstance(each, kind):
            for place in [each.client] if isinstance(each, Crash) else each.directions:
                spans[place].append(each.span)
    return {place: joined(found) for place, found in sorted(spans.items())}


class Presence:
    """Tracks availability, batteries, accidents and crashes, with a timer only for participants that will leave."""

    def __init__(self, env: Clock, fleet: FleetAssignment, seed: int, power: Power) -> None:
        self._env, self._power = env, power
        self.attendance = Attendance(fleet, seed)
        self.accidents = Accidents(fleet, seed)
        self.started: set[int] = set()  # clients whose framework has started, and not crashed since
        self._down: dict[int, float] = {}
        self._participants: dict[int, Callable[[str], None]] = {}
        self._prefetches: dict[int, list[Callable[[], None]]] = {}

    def available(self) -> NDArray[np.bool_]:
        """True for each client that could take part now, shape ``[clients]``."""
        there = self.attendance.there(self._env.now) & self._power.charges.enough(self._env.now)
        there[[client for client in self._down if self.is_down(client)]] = False
        return there

    def next_arrival(self, among: NDArray[np.int64] | None = None) -> float:
        """Seconds until an absent client (of these clients) becomes available; infinite if none does."""
        first = self.attendance.next_arrival(self._env.now, among) - self._env.now
        return min(first, self.next_recovery(among))

    def next_recovery(self, among: NDArray[np.int64] | None = None) -> float:
        """Seconds until a client (of these) restarts after a crash or is charged enough; infinite if none is."""
        now = self._env.now
        first = self._power.charges.next_enough(now, among)
        returns = (until for client, until in self._down.items() if among is None or client in among)
        return min(first, *returns, math.inf) - now

    def enters(self, client: int, quit: Callable[[str], None]) -> str | None:
        """Begin a participation, which ``quit`` ends with a reason; return the reason if it cannot begin."""
        now = self._env.now
        if self.is_down(client):
            return "crash"
        until = math.inf if self.attendance.constant else self.attendance.leaves(client, now)
        if until <= now:
            return "unavailable"
        if not self._power.charges.has_enough(client, now):
            return "uncharged"
        self._participants[client] = quit
        if until < math.inf:
            # An update that arrives at that instant counts.
            self._env.alarm(until - now).callbacks.append(lambda _: quit("unavailable"))
        self._power.enter(client, lambda: quit("battery"))
        return None

    def leaves(self, client: int) -> None:
        self._participants.pop(client, None)
        self._power.leave(client)

    def prefetches(self, client: int, drop: Callable[[], None]) -> None:
        """The client receives parts for a later participation; ``drop`` cancels this."""
        self._prefetches.setdefault(client, []).append(drop)

    def prefetched(self, client: int, drop: Callable[[], None]) -> None:
        self._prefetches[client].remove(drop)

    def is_down(self, client: int) -> bool:
        return not at_most(self._down.get(client, -math.inf), self._env.now)

    def crash(self, client: int, until: float) -> None:
        """The client crashes, and is absent until a time, which may be infinite."""
        self._down[client] = until
        self.started.discard(client)
        for drop in list(self._prefetches.get(client, ())):
            drop()
        if client in self._participants:
            self._participants[client]("crash")

    def restart(self, client: int) -> None:
        del self._down[client]


def schedule_failures(
    env: Clock, failures: Sequence[Crash | Outage], network: Network, presence: Presence, log: EventLog
) -> None:
    """Let the failures happen, and log them; a client that crashes keeps only what it has from earlier rounds."""
    check_outages(failures, network.topology)

    def during(began: float, ended: float, begin: Callable[[], None], end: Callable[[], None]) -> None:
        if at_most(ended, began):
            return
        # What is complete at the instant of a failure stays complete; failures at 0 come first.
        if began > 0:
            env.alarm(began).callbacks.append(lambda _: begin())
        else:
            begin()
        if ended < math.inf:
            env.timeout(ended).callbacks.append(lambda _: end())

    def crash(client: int, until: float) -> None:
        log.write(env.now, "failure", client=client, item="crash")
        network.end_process(f"client/{client}")
        presence.crash(client, until)

    def restart(client: int) -> None:
        log.write(env.now, "failure", client=client, item="restart")
        network.begin_process(f"client/{client}")
        presence.restart(client)

    def change(link: int, item: str, act: Callable[[int], None]) -> None:
        source, target = map(str, network.topology.ends(link))
        log.write(env.now, "failure", item=item, source=source, target=target)
        act(link)

    for client, spans in spans_of(failures, Crash).items():
        for began, ended in spans:
            during(began, ended, partial(crash, client, ended), partial(restart, client))
    for ends, spans in spans_of(failures, Outage).items():
        link = network.topology.link(*ends)
        for began, ended in spans:
            outage = partial(change, link, "outage", network.begin_outage)
            during(began, ended, outage, partial(change, link, "repair", network.end_outage))
