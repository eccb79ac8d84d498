"""Who can take part, and who has to leave in the midst of a round: devices come and go by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from edgefl.fleet import Accidents, Attendance, FleetAssignment, Pace


class Participant(Protocol):
    """A client's part in a round, as far as its presence matters."""

    client: int
    round: int
    pace: Pace

    @property
    def computing(self) -> bool:
        """Whether it computes at the moment."""

    def quit(self, reason: str) -> None:
        """The device leaves the round now; nothing happens where its part is over."""


class Presence:
    """Watches over the devices' availability and accidents.

    A timer is armed only for clients that take part and are known to go, so a fleet that is always there costs nothing.

    Args:
        env: the run's clock.
        fleet: the clients' devices.
        seed: the run's seed.
    """

    def __init__(self, env: simpy.Environment, fleet: FleetAssignment, seed: int) -> None:
        self._env = env
        self._attendance = Attendance(fleet, seed)
        self._accidents = Accidents(fleet, seed)

    def available(self) -> NDArray[np.bool_]:
        """Whether each client could take part now, shape ``[clients]``; not to be written to."""
        return self._attendance.there(self._env.now)

    def next_arrival(self) -> float:
        """Seconds until somebody who is away comes; infinite where nobody does."""
        return self._attendance.next_arrival(self._env.now) - self._env.now

    def enters(self, life: Participant) -> bool:
        """The client's part begins; False where it cannot, because it has gone since it was picked."""
        until = self._attendance.until(life.client, self._env.now)
        if not self.available()[life.client]:
            return False
        if until < math.inf:
            self._later(until - self._env.now, lambda: life.quit("unavailable"))
        return True

    def computes(self, life: Participant) -> None:
        """The client begins to compute; it may have an accident meanwhile."""
        after = self._accidents.after(life.client, life.round)
        if after < 1:
            self._later(after * life.pace.seconds, lambda: life.quit("accident") if life.computing else None)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._env.timeout(seconds).callbacks.append(lambda _: act())
