"""The plan of the real links: nodes, links, addresses and next hops of the simulated routes; it creates nothing."""

from __future__ import annotations

import ipaddress
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from edgefl.errors import UserError

if TYPE_CHECKING:  # the process that makes the links imports this module, and does not need networkx
    from edgefl.network.topology import Topology

MOST_NODES = 128
"""Each is a process with a network namespace."""

LINK_MAKER, TRAINER = "<links>", "<trainer>/"
"""Processes that are no nodes."""

Pair = tuple[str, str]
"""A sender and a receiver, or the two ends of a directed link."""


@dataclass(frozen=True)
class LinkSettings:
    """How the real links queue, and how connections over them begin."""

    dilation: float = 1.0  # real seconds for one second of the scenario
    efficiency: float = 1.0  # the share of a capacity that carries payload
    # fair: a queue for each sender and receiver at shared links; fifo: one for all
    queue: Literal["fair", "fifo"] = "fair"
    initial_window: int | None = None  # packets in the first round trip; None opens the window that fills the path


@dataclass(frozen=True)
class WiredLink:
    """One directed link that some route crosses."""

    number: int
    source: str  # the node that sends, and so the node that shapes the link
    target: str
    capacity: float  # bit/s of the scenario at the start; 0 is an outage, infinite is unshaped
    peak: float  # the highest capacity that the link will have, bit/s; the windows of connections follow from it
    latency: float  # one-way seconds of the scenario
    pairs: tuple[Pair, ...]  # the senders and receivers whose transfers cross it, sorted

    @property
    def ends(self) -> Pair:
        return self.source, self.target

    @property
    def shared(self) -> bool:
        """True if several pairs use the link, so that each needs a queue of its own."""
        return len(self.pairs) > 1


@dataclass(frozen=True)
class Wiring:
    """The plan of the real links."""

    nodes: tuple[str, ...]  # all nodes of all routes, those that send or receive first, in the order of first use
    links: tuple[WiredLink, ...]  # the directed links, by number
    routes: Mapping[Pair, tuple[WiredLink, ...]]  # of each sender and receiver, in the order in which they are crossed

    @cached_property
    def addresses(self) -> dict[str, str]:
        """The IPv4 address of each node, valid only inside the namespaces: 10.0.0.1 and so on."""
        first = ipaddress.IPv4Address("10.0.0.1")
        return {node: str(first + number) for number, node in enumerate(self.nodes)}

    @cached_property
    def hops(self) -> dict[tuple[str, str | None, str], str]:
        """The neighbour for packets of a sender to a receiver; None as the sender: of all, except where paths part."""
        following: dict[Pair, dict[str, str]] = {}
        for (sender, receiver), route in self.routes.items():
            for link in route:
                following.setdefault((link.source, receiver), {})[sender] = link.target
        hops = dict[tuple[str, str | None, str], str]()
        for (node, receiver), by_sender in following.items():
            parted = len(set(by_sender.values())) > 1
            hops |= {(node, sender if parted else None, receiver): each for sender, each in by_sender.items()}
        return hops

    def neighbours(self) -> list[Pair]:
        """The joined pairs, each once: the first node is the one that comes first in ``nodes``."""
        order = {node: number for number, node in enumerate(self.nodes)}
        joined = dict.fromkeys(tuple(sorted(link.ends, key=order.__getitem__)) for link in self.links)
        return [(first, second) for first, second in joined]

    def bytes_in_flight(self, source: str, target: str) -> int:
        """The bytes that fill the path from a sender to a receiver and back, at the highest rate of its links.

        >>> from edgefl.network.tree import TreeLinks
        >>> star = TreeLinks(server=(1e9, 1e9), down=[8e6], up=[1e6], latency=0.02)
        >>> plan_wiring(star, [("server", "client/0")]).bytes_in_flight("server", "client/0")
        40000
        """
        there, back = self.routes[source, target], self.routes[target, source]
        peak = min(link.peak for link in there)
        trip = sum(link.latency for link in [*there, *back])
        return int(peak / 8.0 * trip) if math.isfinite(peak) else 0


def plan_wiring(topology: Topology, talks: Iterable[Pair], *, peaks: Mapping[Pair, float] | None = None) -> Wiring:
    """Plan the links for the nodes that talk to each other.

    Both directions of each talk (a pair in any order) follow the topology's least-latency paths. Links that no path
    crosses are left out. ``peaks`` are the highest bit/s of links by their ends, where not the capacity at the start.

    >>> from edgefl.network.tree import TreeLinks
    >>> star = TreeLinks(server=(1e9, 1e9), down=[8e6, 4e6], up=[1e6, 1e6], latency=0.02)
    >>> wiring = plan_wiring(star, [("server", "client/0"), ("server", "client/1")])
    >>> wiring.nodes
    ('server', 'client/0', 'client/1', 'internet')
    >>> wiring.routes["server", "client/0"][0].pairs
    (('server', 'client/0'), ('server', 'client/1'))
    """
    ways: dict[Pair, tuple[int, ...]] = {}
    for one, other in talks:
        for source, target in ((str(one), str(other)), (str(other), str(one))):
            ways[source, target] = topology.path(source, target)
    passed = (str(node) for way in ways.values() for link in way for node in topology.ends(link))
    nodes = tuple(dict.fromkeys([*itertools.chain(*ways), *passed]))
    if len(nodes) > MOST_NODES:
        raise UserError(f"expected at most {MOST_NODES} nodes for real links, found {len(nodes)}")
    crossing: dict[int, list[Pair]] = {}
    for pair, way in ways.items():
        for link in way:
            crossing.setdefault(link, []).append(pair)
    links: dict[int, WiredLink] = {}
    for number in sorted(crossing):
        source, target = (str(node) for node in topology.ends(number))
        capacity = topology.capacity[number]
        peak = max(capacity, peaks.get((source, target), 0.0) if peaks else 0.0)
        pairs = tuple(sorted(crossing[number]))
        links[number] = WiredLink(number, source, target, capacity, peak, topology.latency[number], pairs)
    routes = {pair: tuple(links[number] for number in way) for pair, way in ways.items()}
    return Wiring(nodes, tuple(links.values()), routes)
