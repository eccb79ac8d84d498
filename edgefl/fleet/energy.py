"""Joules of computing, transferring and waiting.

A device draws its idle watts while it waits and its compute watts (idle included) while it trains. A transfer adds the
radio's ``active + b * rate`` on top of either. Integrated over a transfer whose rate changes at will, that is exactly
``active * seconds + b * bytes``: the energy depends on how long the transfer took and on what it moved, not on how the
rate got there. So the joules of a client over a round are::

    idle_joules(seconds not computing) + compute_joules(seconds computing) + transfer_joules(each transfer)
        + promotion_joules(each time that the radio was asleep) + tail_joules(each gap after a transfer)
"""

from __future__ import annotations

from edgefl.fleet.figure import Bound, value
from edgefl.fleet.profile import DeviceProfile, Direction


def compute_joules(profile: DeviceProfile, seconds: float, *, bound: Bound = "nominal") -> float:
    """Joules of the whole device, idle included, while it trains for ``seconds``."""
    return value(profile.power.compute, bound) * seconds


def idle_joules(profile: DeviceProfile, seconds: float, *, bound: Bound = "nominal") -> float:
    """Joules of the whole device while it does not train, transfers or not, for ``seconds``."""
    return value(profile.power.idle, bound) * seconds


def transfer_joules(
    profile: DeviceProfile, direction: Direction, seconds: float, transferred_bytes: float, *, bound: Bound = "nominal"
) -> float:
    """Joules that a transfer adds to what the device draws anyway.

    Args:
        profile: the device.
        direction: ``"down"`` when the device receives, ``"up"`` when it sends.
        seconds: how long the transfer was under way.
        transferred_bytes: what it moved, also if it was broken off.
        bound: least, nominal or greatest joules that the profile's uncertain figures allow.
    """
    radio = profile.power.radio.down if direction == "down" else profile.power.radio.up
    per_byte = value(radio.energy_per_megabyte, bound) / 1e6
    return value(radio.active, bound) * seconds + per_byte * transferred_bytes


def tail_joules(profile: DeviceProfile, seconds: float, *, bound: Bound = "nominal") -> float:
    """Joules that the radio adds for ``seconds`` after its last transfer, at most those of its whole tail."""
    tail = profile.power.radio.tail
    return 0.0 if tail is None else value(tail.watts, bound) * min(seconds, tail.seconds)


def promotion_joules(profile: DeviceProfile, *, bound: Bound = "nominal") -> float:
    """Joules that waking the radio adds."""
    return value(profile.power.radio.promotion, bound)
