"""Who can take part, and who has to leave in the midst of a round: devices come and go by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.fleet import Accidents, Attendance, FleetAssignment
from edgefl.simulation.batteries import Batteries


class Participant(Protocol):
    """A client's part in a round, as far as its presence matters."""

    client: int
    round: int

    @property
    def computing(self) -> bool:
        """Whether it computes at the moment."""

    def quit(self, reason: str) -> None:
        """The device leaves the round now; nothing happens where its part is over."""


class Presence:
    """Watches over the devices' availability, batteries and accidents.

    A timer is armed only for clients that take part and are known to go, so a fleet that is always there costs nothing.

    Args:
        env: the run's clock.
        fleet: the clients' devices.
        seed: the run's seed.
        batteries: who has charge enough, and runs empty.
    """

    def __init__(self, env: simpy.Environment, fleet: FleetAssignment, seed: int, batteries: Batteries) -> None:
        self._env = env
        self._fleet = fleet
        self._batteries = batteries
        self._attendance = Attendance(fleet, seed)
        self._accidents = Accidents(fleet, seed)

    def available(self) -> NDArray[np.bool_]:
        """Whether each client could take part now, shape ``[clients]``; not to be written to."""
        there = self._attendance.there(self._env.now)
        charges = self._batteries.charges
        return there & charges.enough(self._env.now) if charges.any else there

    def next_arrival(self, among: NDArray[np.int64] | None = None) -> float:
        """Seconds until somebody (of these clients) who is away comes; infinite where nobody does."""
        now, charges = self._env.now, self._batteries.charges
        first = self._attendance.next_arrival(now, among)
        return min(first, charges.next_enough(now, among) if charges.any else math.inf) - now

    def enters(self, life: Participant) -> str | None:
        """The client's part begins; what keeps it from that, where something has since it was picked."""
        client, now = life.client, self._env.now
        if not self._attendance.is_there(client, now):
            return "unavailable"
        charges = self._batteries.charges
        if not charges.has_enough(client, now):
            return "uncharged"
        until = self._attendance.until(client, now)
        if until < math.inf:
            self._later(until - now, lambda: life.quit("unavailable"))
        if charges.any:
            self._batteries.enter(client, self._fleet.profile_of(client), lambda: life.quit("battery"))
        return None

    def leaves(self, life: Participant) -> None:
        """The client's part is over."""
        if self._batteries.charges.any:
            self._batteries.leave(life.client)

    def computes(self, life: Participant, seconds: float, again: int) -> None:
        """The client begins to compute for so many seconds; it may have an accident meanwhile.

        Args:
            life: whose part in the round it is.
            seconds: how long it is going to compute.
            again: how many times it began to compute in this round before.
        """
        after = self._accidents.after(life.client, life.round, again)
        if after < 1:
            self._later(after * seconds, lambda: life.quit("accident") if life.computing else None)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._env.timeout(seconds).callbacks.append(lambda _: act())
