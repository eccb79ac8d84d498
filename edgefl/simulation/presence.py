"""Which clients can take part, and which drop out during a round: devices become available and unavailable."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet import Accidents, Attendance, FleetAssignment
from edgefl.methods.parts.payload import Downlink
from edgefl.network.flow import Network
from edgefl.record.events import EventLog
from edgefl.simulation.clock import Clock
from edgefl.simulation.failure_specs import Crash, Outage, check_outages, spans_of
from edgefl.simulation.power import Power
from edgefl.training.job import TrainingJob
from edgefl.units import at_most


class Phases:
    """Measures consecutive phases in virtual time; the first begins now.

    ``transfers`` has the beginning and end of each completed transfer, seconds.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._began: float = env.now
        self.transfers: list[tuple[float, float]] = []

    def begin(self) -> None:
        """A phase begins now, after a pause."""
        self._began = self._env.now

    def end(self) -> float:
        """The phase ends, and the next one begins; return its seconds."""
        began, self._began = self._began, self._env.now
        return self._began - began

    def end_transfer(self) -> float:
        began = self._began
        seconds = self.end()
        self.transfers.append((began, self._began))
        return seconds

    @property
    def transfer_seconds(self) -> float:
        return sum((ended - began for began, ended in self.transfers), 0.0)

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """The transfer seconds after and before a given time."""
        after = sum(max(0.0, ended - max(began, moment)) for began, ended in self.transfers)
        before = sum(max(0.0, min(ended, moment) - began) for began, ended in self.transfers)
        return after, before


class Participant(ABC):
    """A client in one round: a :class:`~edgefl.simulation.participation.Participation`, or a Flower app's message."""

    phase: str  # ``refused`` if its device has too little memory, ``compute`` while it computes
    downlink: Downlink  # the parts that it was sent

    def __init__(self, env: Clock, job: TrainingJob) -> None:
        self.client = job.id.client
        self.round = job.round  # the model version that it began from
        self.job = job
        self.compute_seconds = 0.0
        self.hidden_seconds = 0.0  # transfer seconds before the round began
        self.relay_seconds = 0.0  # the additional seconds of its cell's own transfers
        # Virtual time at which its update was complete at the server (or at its cell, where cells average); NaN before.
        self.arrived_at = math.nan
        self.reached_at = math.nan  # the same for the server in all cases
        self.entered = False  # whether it began; false if something since its selection prevented this
        self._env = env
        self._phases = Phases(env)

    @property
    def exposed_seconds(self) -> float:
        """Its transfer seconds within the round."""
        return self._phases.transfer_seconds

    def played(self, blocks: int) -> int:
        """The number of blocks that a scheduler chose, or all."""
        return blocks

    def transfers_since(self, moment: float) -> tuple[float, float]:
        """Its transfer seconds after and before a given time: those that lengthened a round that began then, or not."""
        exposed, before = self._phases.transfers_since(moment)
        return exposed + self.relay_seconds, self.hidden_seconds + before

    @abstractmethod
    def quit(self, reason: str) -> None:
        """The device leaves the round now; no effect if its participation has ended."""


class Presence:
    """Tracks the devices' availability, batteries, accidents and crashes.

    A timer is set only for participating clients that will leave, so a fleet that is always available costs nothing.
    """

    def __init__(self, env: Clock, fleet: FleetAssignment, seed: int, power: Power | None) -> None:
        self._env = env
        self._fleet = fleet
        self._power = power
        self.attendance = Attendance(fleet, seed)
        self._accidents = Accidents(fleet, seed)
        self._down: dict[int, float] = {}
        self._participants: dict[int, Participant] = {}
        self._prefetches: dict[int, list[Callable[[], None]]] = {}

    def available(self) -> NDArray[np.bool_]:
        """True for each client that could take part now, shape ``[clients]``; do not modify it."""
        there = self.attendance.there(self._env.now)
        if self._power is not None:
            there = there & self._power.charges.enough(self._env.now)
        if self._down:
            there = there.copy()
            there[[client for client in self._down if self.is_down(client)]] = False
        return there

    def next_arrival(self, among: NDArray[np.int64] | None = None) -> float:
        """Seconds until an absent client (of these clients) becomes available; infinite if none does."""
        first = self.attendance.next_arrival(self._env.now, among) - self._env.now
        return min(first, self.next_recovery(among))

    def next_recovery(self, among: NDArray[np.int64] | None = None) -> float:
        """Seconds until a client (of these) restarts after a crash or is charged enough; infinite if none is."""
        now = self._env.now
        first = math.inf if self._power is None else self._power.charges.next_enough(now, among)
        returns = (until for client, until in self._down.items() if among is None or client in among)
        return min(first, *returns, math.inf) - now

    def enters(self, participant: Participant) -> str | None:
        """Begin the client's participation; return the reason if something since its selection prevents this."""
        client, now = participant.client, self._env.now
        if self.is_down(client):
            return "crash"
        until = math.inf if self.attendance.constant else self.attendance.leaves(client, now)
        if until <= now:
            return "unavailable"
        if self._power is not None and not self._power.charges.has_enough(client, now):
            return "uncharged"
        self._participants[client] = participant
        if until < math.inf:
            # An update that arrives at that instant counts.
            self._env.alarm(until - now).callbacks.append(lambda _: participant.quit("unavailable"))
        if self._power is not None:
            self._power.enter(client, self._fleet.profile_of(client), lambda: participant.quit("battery"))
        return None

    def leaves(self, participant: Participant) -> None:
        if self._participants.get(participant.client) is participant:
            del self._participants[participant.client]
        if self._power is not None:
            self._power.leave(participant.client)

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
        for drop in list(self._prefetches.get(client, ())):
            drop()
        participant = self._participants.get(client)
        if participant is not None:
            participant.quit("crash")

    def restart(self, client: int) -> None:
        del self._down[client]

    def computes(self, participant: Participant, seconds: float, again: int) -> None:
        """The client begins to compute for ``seconds``, after ``again`` earlier times; it may have an accident."""
        accidents = self._accidents
        after = accidents.after(participant.client, participant.round, again) if accidents.happen else 1.0
        if after < 1:
            self._env.timeout(after * seconds).callbacks.append(
                lambda _: participant.quit("accident") if participant.phase == "compute" else None
            )


def schedule_failures(
    env: Clock, failures: Sequence[Crash | Outage], network: Network, presence: Presence, log: EventLog
) -> None:
    """Let the failures of a scenario happen, and log each beginning and end.

    A client that crashes loses what it has in progress: its transfers, its prefetched parts, its computation. What it
    holds from earlier rounds stays on its storage.
    """
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
