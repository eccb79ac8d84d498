"""Batteries: initial charge, charging, and which devices have enough charge to take part."""

import math
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from edgefl.fleet.figure import Bounds, from_number
from edgefl.options import Options
from edgefl.randomness import generator
from edgefl.units import BatteryJoules, Watts, slack


class StartCharge(Bounds):
    """The initial charge of a device as a part of its capacity: drawn uniformly between two bounds."""

    low: float = Field(ge=0, le=1, description="Lowest initial charge.")
    high: float = Field(ge=0, le=1, description="Highest initial charge.")


class Battery(Options):
    """A battery, and its charging while the device does not take part in a round."""

    capacity: Annotated[BatteryJoules, Field(gt=0)] = Field(description="Capacity in joules; `19 Wh` is a usual unit.")
    start: Annotated[StartCharge, BeforeValidator(from_number, json_schema_input_type=float | StartCharge)] = Field(
        StartCharge(low=1, high=1), description="Part of the capacity at the run's start, or its bounds."
    )
    charging: Watts = Field(0.0, description="Watts while the device does not take part; 0: never charged.")
    resume: float = Field(0.2, gt=0, le=1, description="Part of the capacity at which an empty one takes part again.")


class Charges:
    """The charge of every device's battery; devices without a battery never run empty.

    The battery charges between :meth:`leave` and the next :meth:`enter`, in closed form. ``batteries`` has each group's
    battery, or None; ``group`` has each client's group, shape ``[clients]``.

    >>> charges = Charges([Battery(capacity="1 Wh", charging="2 W")], np.zeros(1, np.int32), seed=0)
    >>> charges.enter(0, now=90.0); charges.run_empty(0); charges.leave(0, now=100.0)
    >>> charges.enough(now=400.0).tolist(), charges.next_enough(now=400.0), charges.enough(now=460.0).tolist()
    ([False], 460.0, [True])
    """

    def __init__(self, batteries: list[Battery | None], group: NDArray[np.int32], seed: int) -> None:
        rows = [
            (math.inf, 0.0, 1.0, 1.0, 0.0, 0.0)
            if each is None
            else (each.capacity, slack(each.capacity), each.start.low, each.start.high, each.charging, each.resume)
            for each in batteries
        ]
        # least: joules up to which a battery is empty
        self.capacity, self.least, low, high, self._charging, resume = np.array(rows, np.float64)[group].T
        self._has: list[bool] = np.isfinite(self.capacity).tolist()
        self._none = not any(self._has)
        even = generator(seed, "battery").random(len(group))
        self.joules: NDArray[np.float64] = self.capacity * (low + (high - low) * even)
        self._resume = np.where(np.isfinite(self.capacity), resume * np.minimum(self.capacity, 1e300), 0.0)
        self._since = np.zeros(len(group))
        self._away = np.ones(len(group), np.bool_)
        self._empty = np.zeros(len(group), np.bool_)

    def has(self, client: int) -> bool:
        return self._has[client]

    def draw(self, client: int, joules: float, now: float) -> None:
        """Take energy; a device that charges has what was charged until now.

        >>> charges = Charges([Battery(capacity="1 Wh", charging="2 W")], np.zeros(1, np.int32), seed=0)
        >>> charges.enter(0, now=0.0); charges.draw(0, 3590.0, now=0.0); charges.leave(0, now=0.0)
        >>> charges.draw(0, 50.0, now=45.0); charges.held(0, now=45.0)
        50.0
        """
        if not self._has[client]:
            return
        if self._away[client] and self._charging[client]:
            self.joules[client], self._since[client] = self.held(client, now), max(now, self._since[client])
        self.joules[client] = max(self.joules[client] - joules, 0.0)

    def enter(self, client: int, now: float) -> None:
        """The device begins to take part; charging ends."""
        if self._none:
            return
        self.joules[client] = self.held(client, now)
        self._away[client], self._empty[client] = False, False

    def leave(self, client: int, now: float) -> None:
        """The device stops taking part; charging begins."""
        if not self._none and not self._away[client]:
            self._since[client], self._away[client] = now, True
            if self.joules[client] <= self.least[client]:
                self.run_empty(client)

    def run_empty(self, client: int) -> None:
        """The battery is empty; the device can take part again when it has charged to ``resume``."""
        self.joules[client], self._empty[client] = 0.0, True

    def enough(self, now: float) -> NDArray[np.bool_]:
        """True for clients with enough charge to take part, shape ``[clients]``."""
        if self._none:
            return np.ones(len(self._has), np.bool_)
        joules = self._at(now)
        return np.asarray(np.where(self._empty, joules >= self._resume - self.least, joules > self.least), np.bool_)

    def has_enough(self, client: int, now: float) -> bool:
        """Without computing :meth:`enough` for the fleet."""
        if self._none:
            return True
        joules = self.held(client, now)
        least = float(self.least[client])
        return joules >= float(self._resume[client]) - least if self._empty[client] else joules > least

    def next_enough(self, now: float, among: NDArray[np.int64] | None = None) -> float:
        """The first time at which an empty device (of these clients) can take part again; infinite if none can."""
        waiting = np.flatnonzero(self._empty & ~self.enough(now) & (self._charging > 0))
        if among is not None:
            waiting = np.intersect1d(waiting, among)
        if not len(waiting):
            return math.inf
        lacking = self._resume[waiting] - self.joules[waiting]
        return float((self._since[waiting] + lacking / self._charging[waiting]).min())

    def held(self, client: int, now: float) -> float:
        """Joules, without subtracting what the client currently draws."""
        seconds = max(now - float(self._since[client]), 0.0) if self._away[client] else 0.0
        return min(float(self.joules[client] + self._charging[client] * seconds), float(self.capacity[client]))

    def left(self, now: float) -> NDArray[np.float64]:
        """The part of the capacity that each battery holds, shape ``[clients]``; NaN without a battery."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self._at(now) / self.capacity)

    def _at(self, now: float) -> NDArray[np.float64]:
        charged = self._charging * np.where(self._away, np.maximum(now - self._since, 0.0), 0.0)
        return np.asarray(np.minimum(self.joules + charged, self.capacity), np.float64)
