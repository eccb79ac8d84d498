"""Conditions under which a finished run is re-timed: a bound of the devices' figures and a factor on the bandwidth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from edgefl.fleet.figure import Bound, Estimate, opposite, value
from edgefl.fleet.profile import DeviceProfile
from edgefl.network.specs import ConstantCapacity, GeneratedCapacity, LinkSpec, TraceCapacity, UniformCapacity
from edgefl.network.topology import Topology
from edgefl.record.sensitivity import DEVICES, Condition

Part = TypeVar("Part", bound=BaseModel)
AnyCapacity = ConstantCapacity | UniformCapacity | TraceCapacity | GeneratedCapacity

_RATES = frozenset({"fp32_peak", "fp32_achievable", "memory_bandwidth"})
"""Rates: larger figures give fewer seconds."""


CONDITIONS = [Condition(*each) for each in itertools.product(DEVICES, (0.7, 1.0, 1.3))]
"""The low, nominal and high bounds of the profiles' figures, each with 70 %, 100 % and 130 % of the bandwidth."""


def at_bound(profile: DeviceProfile, bound: Bound) -> DeviceProfile:
    """Return the profile without uncertainty: its speeds, overheads and powers give this bound of seconds and joules.

    Memory and battery are unchanged, because they determine which clients can participate.

    >>> from edgefl.fleet import load_profile
    >>> profile = load_profile("raspberry-pi-4")
    >>> [value(at_bound(profile, bound).compute.fp32_achievable) / 1e9 for bound in ("low", "nominal", "high")]
    [23.8, 11.9, 5.9]
    """
    changed = {"compute": _fixed(profile.compute, bound), "power": _fixed(profile.power, bound)}
    return profile.model_copy(update=changed)


def _fixed(part: Part, bound: Bound) -> Part:
    changes: dict[str, Any] = {}
    for name in type(part).model_fields:
        found = getattr(part, name)
        if isinstance(found, Estimate):
            changes[name] = value(found, opposite(bound) if name in _RATES else bound)
        elif isinstance(found, BaseModel):
            changes[name] = _fixed(found, bound)
        elif isinstance(found, tuple):
            changes[name] = tuple(_fixed(each, bound) if isinstance(each, BaseModel) else each for each in found)
    return part.model_copy(update=changes)


def scaled_links(links: Mapping[str, LinkSpec], factor: float) -> dict[str, LinkSpec]:
    """Return the clients' links with every capacity multiplied by ``factor``; random draws stay the same.

    >>> link = LinkSpec.model_validate({"down": "10 Mbit/s", "up": {"kind": "uniform", "low": 1e6, "high": 2e6}})
    >>> scaled = scaled_links({"lte": link}, 0.5)["lte"]
    >>> scaled.down.rate, scaled.up.low, scaled.up.high
    (5000000.0, 500000.0, 1000000.0)
    """
    return {
        name: link.model_copy(update={"down": _scaled(link.down, factor), "up": _scaled(link.up, factor)})
        for name, link in links.items()
    }


def _scaled(capacity: AnyCapacity, factor: float) -> AnyCapacity:
    changes: dict[str, Any]
    if isinstance(capacity, ConstantCapacity):
        changes = {"rate": capacity.rate * factor}
    elif isinstance(capacity, UniformCapacity):
        changes = {"low": capacity.low * factor, "high": capacity.high * factor}
    elif isinstance(capacity, TraceCapacity):
        changes = {"scale": capacity.scale * factor}
    else:
        changes = {"like": None, "quantiles": {percent: rate * factor for percent, rate in capacity.rates.items()}}
    return capacity.model_copy(update=changes)


def scale_topology(topology: Topology, factor: float) -> None:
    """Multiply the capacities of all links of a topology that no flow has used yet."""
    for link, capacity in enumerate(topology.capacity):
        topology.capacity[link] = capacity * factor
