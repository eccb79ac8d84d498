"""Conditions under which a finished run is re-timed: a bound of the devices' figures and a factor on the bandwidth."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

from pydantic import BaseModel

from edgefl.fleet.figure import Bound, Estimate, opposite, value
from edgefl.fleet.profile import RATES, DeviceProfile
from edgefl.record.sensitivity import DEVICES, DRAWS, OWN, Condition

Part = TypeVar("Part", bound=BaseModel)

CONDITIONS = [Condition(*each) for each in itertools.product(DEVICES, (0.7, 1.0, 1.3))]
"""The low, nominal and high bounds of the profiles' figures, each with 70 %, 100 % and 130 % of the bandwidth."""

OTHER_DRAWS = [OWN._replace(draw=draw) for draw in range(1, DRAWS)]
"""The run's own devices and bandwidth, with other shares in queues."""


def at_bound(profile: DeviceProfile, bound: Bound) -> DeviceProfile:
    """Return the profile without uncertainty: its speeds, overheads and powers give this bound of seconds and joules.

    Memory and battery are unchanged, because they determine which clients can participate.

    >>> from edgefl.fleet import load_profile
    >>> profile = load_profile("raspberry-pi-4")
    >>> [value(at_bound(profile, bound).compute.fp32_achievable) / 1e9 for bound in ("low", "nominal", "high")]
    [22.21, 20.16, 18.3]
    """
    changed = {"compute": _fixed(profile.compute, bound), "power": _fixed(profile.power, bound)}
    return profile.model_copy(update=changed)


def _fixed(part: Part, bound: Bound) -> Part:
    changes: dict[str, Any] = {}
    for name in type(part).model_fields:
        found = getattr(part, name)
        if isinstance(found, Estimate):
            changes[name] = value(found, opposite(bound) if name in RATES else bound)
        elif isinstance(found, BaseModel):
            changes[name] = _fixed(found, bound)
        elif isinstance(found, tuple):
            changes[name] = tuple(_fixed(each, bound) if isinstance(each, BaseModel) else each for each in found)
    return part.model_copy(update=changes)
