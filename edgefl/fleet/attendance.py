"""What happens to devices over time: when they are available, accidents, random slowdowns and heat."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgefl.fleet.assignment import FleetAssignment
from edgefl.fleet.availability import DAY, Always, Diurnal, Windows
from edgefl.fleet.prices import local_seconds
from edgefl.randomness import generator
from edgefl.units import at_most, slack


class Attendance:
    """Each client's availability, queried in ascending order of time; draws are keyed by seed and group."""

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
            if fleet.start is not None and isinstance(spec, Diurnal):
                shifts = shifts + local_seconds(fleet.start, fleet.timezone[group]) % (spec.days * DAY)
            self._part_of[members] = len(self._parts)
            self._place[members] = np.arange(len(members))
            self._parts.append((members, windows, rows, shifts))
            self._until[members] = -math.inf
        self.constant = not self._parts  # all clients are always available

    def there(self, now: float) -> NDArray[np.bool_]:
        """True for clients that can take part now, shape ``[clients]``; do not modify the array."""
        # Slightly later than now, so that a window that ends now counts as ended despite rounding.
        seconds = now + slack(now)
        stale = np.flatnonzero(self._until <= seconds)
        for part, (_, windows, rows, shifts) in enumerate(self._parts):
            mine = stale[self._part_of[stale] == part]
            if len(mine):
                place = self._place[mine]
                there, stays = windows.state(rows[place], seconds + shifts[place])
                self._there[mine], self._until[mine] = there, seconds + stays
        return self._there

    @property
    def period(self) -> float:
        """Seconds after which every client's windows repeat; 0 if all are always available."""
        return max((float(windows.periods.max()) for _, windows, _, _ in self._parts), default=0.0)

    def stays(self, clients: NDArray[np.int64], now: float) -> NDArray[np.float64]:
        """Seconds for which the availability of each of these clients does not change."""
        self.there(now)
        return self._until[clients] - now

    def leaves(self, client: int, now: float) -> float:
        """The time at which the client becomes unavailable; ``now`` if it is, infinite if it never does."""
        if at_most(self._until[client], now):
            self.there(now)
        return float(self._until[client]) if self._there[client] else now

    def share(self, clients: NDArray[np.int64], begin: float, end: float) -> NDArray[np.float64]:
        """The part of the time from ``begin`` to ``end`` in which each of these clients can take part."""
        shares = np.ones(len(clients))
        for part, (_, windows, rows, shifts) in enumerate(self._parts):
            mine = np.flatnonzero(self._part_of[clients] == part)
            place = self._place[clients[mine]]
            shares[mine] = windows.share(rows[place], begin + shifts[place], end + shifts[place])
        return shares

    def next_arrival(self, now: float, among: NDArray[np.int64] | None = None) -> float:
        """The first time at which an unavailable client (of these) becomes available; infinite if none does."""
        there, until = self.there(now), self._until
        if among is not None:
            there, until = there[among], until[among]
        return float(until[~there].min(initial=math.inf))


class Accidents:
    """Random dropouts of clients while they compute (a group's ``dropout``)."""

    def __init__(self, fleet: FleetAssignment, seed: int) -> None:
        chances = np.array(fleet.dropout or (0.0,) * len(fleet.profiles), np.float64)
        self._happen = bool(chances.any())
        self._chance: NDArray[np.float64] = chances[fleet.group]
        self._drawn = lru_cache(8)(lambda *place: generator(seed, "dropout", *place).random(len(fleet.group)))

    def after(self, client: int, round: int, again: int = 0) -> float:
        """The part of its computing seconds in this round (from 0) after which the client drops out; 1: it does not.

        One keyed vector u over the fleet is drawn per round: if u < dropout, the client drops out after u / dropout,
        which is again uniform between 0 and 1. Without common rounds, ``round`` is the model version. ``again`` is how
        many times the client began to compute in this round before; each time has a separate draw.
        """
        if not self._happen:
            return 1.0
        drawn = self._drawn(round, again) if again else self._drawn(round)
        even, chance = float(drawn[client]), float(self._chance[client])
        return even / chance if even < chance else 1.0


class Slowdown:
    """The factors by which computing takes longer than the profile predicts.

    A factor is exp(σz - σ²/2) / (1 - b). The first part is lognormal with mean 1; z is a standard normal number and σ
    the profile's ``compute.jitter``; b is ``compute.background_load``.

    >>> from edgefl.fleet import FleetGroup, assign
    >>> groups = [FleetGroup(profile="raspberry-pi-5", share=1, link="5g", overrides={"compute": {"jitter": 0.2}})]
    >>> slowdown = Slowdown(assign(groups, clients=3, seed=0), seed=0)
    >>> slowdown.of(round=4).shape, bool(slowdown.of(round=4)[1] == slowdown.of(round=5)[1])
    ((3,), False)
    """

    def __init__(self, fleet: FleetAssignment, seed: int) -> None:
        self._seed = seed
        computes = [profile.compute for profile in fleet.profiles]
        table = np.array(
            [(each.jitter, each.background_load.low, each.background_load.high) for each in computes], np.float64
        )
        self.steady = not table.any()  # all factors are 1
        self._conditions: NDArray[np.float64] = table[fleet.group].T
        self._drawn = lru_cache(8)(self._draw)  # a run uses few rounds at a time; older ones are drawn again if needed

    def of(self, round: int, again: int = 0) -> NDArray[np.float64]:
        """Clients' factors in a round or model version (from 0), ``[clients]``, when it is computed ``again``."""
        return self._drawn(round, again) if again else self._drawn(round)

    def _draw(self, *place: int) -> NDArray[np.float64]:
        jitter, low, high = self._conditions
        normal = generator(self._seed, "jitter", *place).standard_normal(len(jitter))
        even = generator(self._seed, "background load", *place).random(len(jitter))
        load = low + (high - low) * even
        return np.asarray(np.exp(jitter * normal - jitter**2 / 2) / (1 - load), np.float64)


class Heat:
    """How warm each device is: the seconds of computing from which it has not cooled yet."""

    def __init__(self, fleet: FleetAssignment) -> None:
        self._fleet = fleet
        self._known: dict[int, tuple[float, float]] = {}  # when a client computed last, and its heat then

    def of(self, client: int, now: float) -> float:
        thermal = self._fleet.profile_of(client).compute.thermal
        if thermal is None or thermal.cooling is None or client not in self._known:
            return 0.0
        since, heat = self._known[client]
        return heat * math.exp(-max(0.0, now - since) / thermal.cooling)

    def computed(self, client: int, seconds: float, now: float) -> None:
        """The client has computed for the last ``seconds``."""
        thermal = self._fleet.profile_of(client).compute.thermal
        if thermal is not None and thermal.cooling is not None:
            self._known[client] = now, min(thermal.after, self.of(client, now - seconds) + seconds)


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of one computation.

    ``cool`` are the seconds of the whole computation at the full rate, which lasts for ``after`` seconds; ``hot`` those
    at the throttled rate.

    A computation of one minute on a device that halves its rate after 20 s:

    >>> pace = Pace(cool=60.0, hot=120.0, after=20.0)
    >>> round(pace.seconds, 9), round(pace.done(60.0), 9)
    (100.0, 0.666666667)
    """

    cool: float
    hot: float
    after: float = math.inf

    @property
    def seconds(self) -> float:
        return self.until(1.0)

    def until(self, part: float) -> float:
        """The seconds after which ``part`` of it is done; the inverse of :meth:`done`.

        >>> Pace(cool=60.0, hot=120.0, after=20.0).until(0.5)
        40.0
        """
        if part * self.cool <= self.after:
            return part * self.cool
        return self.after + (part - self.after / self.cool) * self.hot

    def done(self, elapsed: float) -> float:
        """The part that is done after ``elapsed`` seconds, in [0, 1]."""
        if elapsed >= self.seconds:
            return 1.0
        if elapsed <= self.after:
            return elapsed / self.cool
        return self.after / self.cool + (elapsed - self.after) / self.hot
