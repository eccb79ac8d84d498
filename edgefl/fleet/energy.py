"""Joules of computing, transferring and waiting.

A device draws its idle watts while it waits and its compute watts (idle included) while it trains. A transfer adds the
radio's ``active + b * rate`` to either. Integrated over a transfer with any changes of rate, this is exactly
``active * seconds + b * bytes``: the energy depends on the duration and the bytes of the transfer, not on how its rate
changed. The joules of a client over a round are therefore::

    idle_joules(seconds not computing) + compute_joules(seconds computing) + transfer_joules(each transfer)
        + promotion_joules(each wake-up of the radio) + tail_joules(each gap after a transfer)
"""

from edgefl.fleet.figure import Bound, value
from edgefl.fleet.profile import DeviceProfile, Direction


def compute_joules(profile: DeviceProfile, seconds: float, *, bound: Bound = "nominal") -> float:
    """Joules of the whole device, idle included, while it trains for ``seconds``."""
    return value(profile.power.compute, bound) * seconds


def training_watts(
    profile: DeviceProfile, seconds: float, waiting: float, reading: float, launching: float = 0.0
) -> float:
    """Mean watts over ``seconds`` of local training, of which it waits for data during ``waiting``.

    All cores together read for ``reading`` seconds, and one core works while a GPU waits during ``launching``.
    """
    full = compute_joules(profile, 1.0)
    if not reading and not launching:
        return full
    idle, cores = value(profile.power.idle), profile.compute.cores or OTHER_CORES
    own = profile.power.one_core
    one_core = idle + (full - idle) / cores if own is None else value(own)
    less = (one_core - full) * (waiting + launching) + (one_core - idle) * (reading - waiting)
    return min(full, full + less / seconds)


OTHER_CORES = 8
"""Cores of a device that trains on another processor: one of them draws this part of the difference to full load."""


def idle_joules(profile: DeviceProfile, seconds: float, *, bound: Bound = "nominal") -> float:
    """Joules of the whole device while it does not train for ``seconds``, with or without transfers."""
    return value(profile.power.idle, bound) * seconds


def transfer_joules(
    profile: DeviceProfile, direction: Direction, seconds: float, transferred_bytes: float, *, bound: Bound = "nominal"
) -> float:
    """Joules that a transfer, complete or aborted, adds; the direction is ``"down"`` if the device receives."""
    radio = profile.power.radio.down if direction == "down" else profile.power.radio.up
    per_byte = value(radio.energy_per_megabyte, bound) / 1e6
    return value(radio.active, bound) * seconds + per_byte * transferred_bytes


def tail_joules(profile: DeviceProfile, seconds: float, *, bound: Bound = "nominal") -> float:
    """Joules that the radio adds in the ``seconds`` after its last transfer, at most those of its whole tail."""
    tail = profile.power.radio.tail
    return 0.0 if tail is None else value(tail.watts, bound) * min(seconds, tail.seconds)


def promotion_joules(profile: DeviceProfile, *, bound: Bound = "nominal") -> float:
    """Joules that waking the radio adds."""
    return value(profile.power.radio.promotion, bound)
