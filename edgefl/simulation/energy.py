"""The energy of devices while they do not compute, in idle time and transfers; cached, because charged very often."""

from __future__ import annotations

from edgefl.fleet import FleetAssignment, idle_joules, transfer_joules
from edgefl.simulation.transfer import Direction

_DIRECTIONS: tuple[Direction, Direction] = ("down", "up")


class DeviceEnergy:
    """:func:`~edgefl.fleet.idle_joules` and :func:`~edgefl.fleet.transfer_joules` by client.

    Args:
        fleet: which device each client has.
    """

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
