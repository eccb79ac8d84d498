"""The paths of transfers, computed once for each pair of nodes, and the duration of a transfer alone on its path."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from edgefl.network.flow import Node
from edgefl.network.topology import Topology

_KEPT = 4096
"""The number of cached routes: enough for all routes of a small fleet, and little memory for a large one."""


class Route(NamedTuple):
    """The least-latency path between two nodes.

    Attributes:
        links: their numbers, in the order in which they are crossed.
        latency: their total latency, seconds.
        nodes: the names of all nodes on the path, both ends included.
    """

    links: tuple[int, ...]
    latency: float
    nodes: tuple[str, ...]


class Alone(NamedTuple):
    """A path that one transfer has to itself.

    Attributes:
        latency: seconds before the first byte flows.
        bits_per_second: the rate of the transfer, after slow start; 0 where a link is down.
        sending: the seconds from the first to the last byte, given the bytes; None if the rate does not change.
    """

    latency: float
    bits_per_second: float
    sending: Callable[[float], float] | None = None

    def seconds(self, bytes: float) -> float:
        """The seconds of a transfer; infinite if the rate is 0.

        >>> Alone(latency=0.02, bits_per_second=8e6).seconds(1_500_000)
        1.52
        """
        if self.sending is not None:
            return self.latency + self.sending(bytes)
        return self.latency + 8.0 * bytes / self.bits_per_second if self.bits_per_second > 0.0 else math.inf


def router(topology: Topology) -> Callable[[Node, Node], Route]:
    """Finds routes between two nodes of a topology; raises UserError if there is none.

    >>> from edgefl.network.tree import TreeLinks
    >>> route = router(TreeLinks(server=(1e9, 1e9), down=[8e6, 4e6], up=[1e6, 1e6], latency=0.02))
    >>> route("server", "client/1")
    Route(links=(0, 4), latency=0.02, nodes=('server', 'internet', 'client/1'))
    """

    @lru_cache(_KEPT)
    def route(source: Node, target: Node) -> Route:
        links = topology.path(source, target)
        latency = sum(topology.latency[link] for link in links)
        return Route(links, latency, (*(str(topology.ends(link)[0]) for link in links), str(target)))

    return route
