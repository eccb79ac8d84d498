"""What a run has spent, its budgets, and how it ends."""

from __future__ import annotations

import simpy

from edgefl.fleet import Direction, FleetAssignment, idle_joules, transfer_joules
from edgefl.fleet.battery import Charges
from edgefl.record.kinds import BudgetKind, StopReason
from edgefl.simulation.ledger import Ledger
from edgefl.simulation.setup import Setup

_DIRECTIONS: tuple[Direction, Direction] = ("down", "up")


class DeviceEnergy:
    """The joules of the clients' devices while they do not compute; the rates of each profile are computed once."""

    def __init__(self, fleet: FleetAssignment) -> None:
        self._group = fleet.group
        self._idle = [idle_joules(profile, 1.0) for profile in fleet.profiles]
        # Watts during a transfer, and joules per byte.
        self._transfer = {
            direction: [
                (transfer_joules(profile, direction, 1.0, 0.0), transfer_joules(profile, direction, 0.0, 1.0))
                for profile in fleet.profiles
            ]
            for direction in _DIRECTIONS
        }

    def idle(self, client: int, seconds: float) -> float:
        """Joules of the client's device during ``seconds`` without training."""
        return self._idle[int(self._group[client])] * seconds

    def transfer(self, client: int, direction: Direction, seconds: float, transferred_bytes: float) -> float:
        """Joules of a transfer, in addition to the device's other energy."""
        watts, per_byte = self._transfer[direction][int(self._group[client])]
        return watts * seconds + per_byte * transferred_bytes


class Accounts:
    """Updates the ledger and the charges of the batteries, and ends the run when a budget is exhausted.

    ``stopped`` triggers, with the reason as its value, when the run is to end.
    """

    def __init__(self, env: simpy.Environment, setup: Setup) -> None:
        self.ledger = Ledger()
        self.charges = Charges([profile.battery for profile in setup.fleet.profiles], setup.fleet.group, setup.seed)
        self.draws = DeviceEnergy(setup.fleet)
        self.stopped: simpy.Event = env.event()
        self._env = env
        self._log = setup.log
        self._limits = setup.limits
        self._goes_on = setup.stop == "rounds"

    def drew(self, client: int, joules: float) -> None:
        self.ledger.joules += joules
        if self.charges.any:
            self.charges.draw(client, joules)

    def check(self) -> None:
        for budget in self._limits.newly_exhausted(self.ledger):
            self.exhausted(budget.kind, budget.limit)

    def exhausted(self, kind: BudgetKind, limit: float) -> None:
        self._log.write(self._env.now, "budget", item=kind, value=limit)
        if not self._goes_on:
            self.stop(kind)

    def stop(self, reason: StopReason) -> None:
        """End the run at this instant, once."""
        if not self.stopped.triggered:
            self.stopped.succeed(reason)
