"""Who of the fleet can take part at a moment, and who leaves a round by accident."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet.assignment import FleetAssignment
from edgefl.fleet.availability import Always
from edgefl.fleet.windows import Windows
from edgefl.randomness import generator

_LATE = 1e-9
"""A window that ends within a nanosecond has ended: the clock's rounding must not find it open for ever."""


class Attendance:
    """When each client can take part, for a whole fleet at once.

    What is known stays known until it changes, so asking for the fleet costs one comparison a client, and more only for
    those who have come or gone since. Moments are to be asked for in ascending order.

    Args:
        fleet: the clients' groups with their ``availability``.
        seed: the run's seed; the draws are keyed by it and the group alone.

    Raises:
        UserError: a trace cannot be read.
    """

    def __init__(self, fleet: FleetAssignment, seed: int) -> None:
        clients = len(fleet.group)
        self._there = np.ones(clients, np.bool_)
        self._until = np.full(clients, math.inf)
        self._parts: list[tuple[NDArray[np.int64], Windows, NDArray[np.int64], NDArray[np.float64]]] = []
        self._part_of = np.full(clients, -1, np.int64)
        self._place = np.zeros(clients, np.int64)
        for group, spec in enumerate(fleet.availability):
            members = np.flatnonzero(fleet.group == group)
            if isinstance(spec, Always) or not len(members):
                continue
            windows, rows, shifts = spec.windows(len(members), generator(seed, "availability", group))
            self._part_of[members] = len(self._parts)
            self._place[members] = np.arange(len(members))
            self._parts.append((members, windows, rows, shifts))
            self._until[members] = -math.inf

    def there(self, now: float) -> NDArray[np.bool_]:
        """Whether each client can take part now, shape ``[clients]``; not to be written to."""
        stale = np.flatnonzero(self._until <= now + _LATE)
        for part, (_, windows, rows, shifts) in enumerate(self._parts):
            mine = stale[self._part_of[stale] == part]
            if len(mine):
                place = self._place[mine]
                # Asked a moment later than now, lest a rounding error finds what ends now still under way.
                there, stays = windows.state(rows[place], now + _LATE + shifts[place])
                self._there[mine], self._until[mine] = there, now + _LATE + stays
        return self._there

    def until(self, client: int, now: float) -> float:
        """The moment at which the client next comes or goes; infinite where it never does."""
        if self._until[client] <= now + _LATE:
            self.there(now)
        return float(self._until[client])

    def is_there(self, client: int, now: float) -> bool:
        """Whether one client can take part now."""
        if self._until[client] <= now + _LATE:
            self.there(now)
        return bool(self._there[client])

    def next_arrival(self, now: float, among: NDArray[np.int64] | None = None) -> float:
        """The first moment at which somebody (of these clients) who is away comes; infinite where nobody does."""
        there, until = self.there(now), self._until
        if among is not None:
            there, until = there[among], until[among]
        return float(until[~there].min(initial=math.inf))


class Accidents:
    """Who drops out of a round in the midst of computing, by chance (a group's ``dropout``).

    Args:
        fleet: the clients' groups.
        seed: the run's seed.
    """

    def __init__(self, fleet: FleetAssignment, seed: int) -> None:
        chances = np.array(fleet.dropout or (0.0,) * len(fleet.profiles), np.float64)
        self._chance: NDArray[np.float64] | None = chances[fleet.group] if chances.any() else None
        self._seed = seed
        self._known: dict[tuple[int, int], NDArray[np.float64]] = {}

    def after(self, client: int, round: int, again: int = 0) -> float:
        """The part of its computing seconds in this round (from 0) after which the client drops out; 1: it does not.

        One keyed vector over the fleet a round: if u < chance, the client drops out after u / chance, which is again
        even between 0 and 1.

        Args:
            client: who computes.
            round: the round, or the model version where there are no common rounds.
            again: how many times it began to compute in that round before; each time has a draw of its own.
        """
        if self._chance is None:
            return 1.0
        key = (round, again)
        if key not in self._known:
            if len(self._known) > 7:
                self._known.clear()
            place = key if again else (round,)
            self._known[key] = generator(self._seed, "dropout", *place).random(len(self._chance))
        even, chance = float(self._known[key][client]), float(self._chance[client])
        return even / chance if even < chance else 1.0
