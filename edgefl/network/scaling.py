"""The capacities of a network, multiplied by one factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefl.network.specs import ConstantCapacity, GeneratedCapacity, LinkSpec, TraceCapacity, UniformCapacity
from edgefl.network.topology import Topology

AnyCapacity = ConstantCapacity | UniformCapacity | TraceCapacity | GeneratedCapacity


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
