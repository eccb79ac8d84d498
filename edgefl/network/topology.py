"""Links as arrays, and the least-latency path between two nodes."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable, Hashable
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple, Protocol

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError, nearest, one_line

Node = Hashable
"""A node of the topology: ``"server"``, ``"client/17"``, or any node of the user's graph."""

Sharing = Literal["wired", "rate_fair", "airtime_fair"]
"""How flows share a wireless channel: not at all, at equal rates, or with equal shares of the time."""


class Topology(Protocol):
    """Numbered links with a capacity (bit/s) and a latency (s), and paths over them."""

    capacity: array[float]
    latency: array[float]
    airs: int
    """Number of wireless channels, each shared by some of the links."""
    airtime_fair: bool
    """True: a channel's flows get equal shares of its time; false: equal rates."""

    def air(self, link: int) -> int:
        """The wireless channel that a link is part of, from 0; -1 for a wired link."""

    def link(self, source: Node, target: Node) -> int:
        """The number of the link; raises UserError if there is none."""

    def ends(self, link: int) -> tuple[Node, Node]:
        """The two nodes of a link."""

    def path(self, source: Node, target: Node) -> tuple[int, ...]:
        """The links of the least-latency path; raises UserError if there is none."""

    def client_links(self, clients: int, *, up: bool) -> NDArray[np.int64]:
        """The link by which each client sends (``up``) or receives; raises UserError if one has none or several."""


def unknown_node(node: Node, known: list[str]) -> UserError:
    """The error for an unknown node."""
    return UserError(f"the network has no node {node!r}; {nearest(str(node), known)}")


def no_link(topology: Topology, source: Node, target: Node) -> UserError:
    """The error for two nodes without a link; it names the neighbours of the first one."""
    ends = (topology.ends(link) for link in range(len(topology.capacity)))
    found = list(islice((str(far) for near, far in ends if near == source), 6))
    choices = f"expected one of: {', '.join(found[:5])}{', …' if len(found) > 5 else ''}"
    return UserError(
        f"the network has no link {source!r} -> {target!r}; "
        + (f"from {source!r} {choices}" if found else f"no link begins at {source!r}")
    )


def checked_capacity(bits_per_second: float, what: str) -> float:
    """A capacity as a float of at least 0 (infinite: never a bottleneck), or UserError."""
    value = _number(bits_per_second)
    if not value >= 0.0:
        raise UserError(f"{what}: expected a capacity of at least 0 bit/s, found {one_line(bits_per_second)}")
    return value


def _number(value: object) -> float:
    """NaN for anything that is not a number, such as a text or null."""
    try:
        return math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


class GraphLinks:
    """The links of a directed graph whose edges carry ``capacity`` (bit/s) and ``latency`` (s, 0 where left out).

    Paths have the least latency, then the fewest hops; among equal paths the node that comes first in the graph wins.

    Edges with the same ``air`` are one wireless channel, and their flows share its time: for each of its edges in the
    channel, a flow takes its rate divided by the edge's capacity. So one name for both directions of a link is a
    half-duplex channel, and a relay that receives and sends on one channel halves its capacity.

    Args:
        sharing: how the channels are shared; ``wired`` ignores ``air``. ``rate_fair``: equal rates. ``airtime_fair``:
            equal shares of the time, by weights: a flow of weight 1 whose bits take 1/C seconds of a channel has the
            weight C/(1 Mbit/s) on every link that it crosses. If it uses several channels, the one in which its bits
            take longest counts; a flow that uses none keeps its weight.

    >>> graph = nx.DiGraph()
    >>> graph.add_edge("server", "client/0", capacity=8e6, latency=0.02)
    >>> links = GraphLinks(graph)
    >>> links.path("server", "client/0"), links.ends(0), links.capacity[0]
    ((0,), ('server', 'client/0'), 8000000.0)
    """

    def __init__(self, graph: nx.DiGraph[Node], *, sharing: Sharing = "wired") -> None:
        if not graph.is_directed():
            raise UserError("expected a directed graph (networkx.DiGraph): each direction has its own capacity")
        self._nodes: list[Node] = list(graph.nodes)
        self._number = {node: number for number, node in enumerate(self._nodes)}
        self._links: dict[tuple[int, int], int] = {}
        self._ends: list[tuple[int, int]] = []
        self._out: list[list[int]] = [[] for _ in self._nodes]
        self._in: list[list[int]] = [[] for _ in self._nodes]
        self._paths: dict[tuple[int, int], tuple[int, ...]] = {}
        self.capacity, self.latency, self._air = array("d"), array("d"), array("q")
        self.airtime_fair = sharing == "airtime_fair"
        channels: dict[str, int] = {}
        for source, target, attributes in graph.edges(data=True):
            edge = f"edge {source!r} -> {target!r}"
            if "capacity" not in attributes:
                raise UserError(f"{edge}: expected a capacity in bit/s, found none")
            latency = _number(attributes.get("latency", 0.0))
            if not (0.0 <= latency < math.inf):
                found = one_line(attributes["latency"])
                raise UserError(f"{edge}: expected a latency of at least 0 seconds, found {found}")
            ends = (self._number[source], self._number[target])
            self._links[ends] = link = len(self._ends)
            self._ends.append(ends)
            self._out[ends[0]].append(link)
            self._in[ends[1]].append(link)
            self.capacity.append(checked_capacity(attributes["capacity"], edge))
            self.latency.append(latency)
            air = attributes.get("air")
            wired = sharing == "wired" or air is None
            self._air.append(-1 if wired else channels.setdefault(str(air), len(channels)))
        self.airs = len(channels)
        if sharing != "wired" and not channels:
            raise UserError(f"expected edges with the name of their 'air' for '{sharing}' sharing, found none")

    def air(self, link: int) -> int:
        return self._air[link]

    def link(self, source: Node, target: Node) -> int:
        ends = (self._find(source), self._find(target))
        if ends not in self._links:
            raise no_link(self, source, target)
        return self._links[ends]

    def ends(self, link: int) -> tuple[Node, Node]:
        source, target = self._ends[link]
        return self._nodes[source], self._nodes[target]

    def path(self, source: Node, target: Node) -> tuple[int, ...]:
        start, goal = self._find(source), self._find(target)
        # A node with one link out (or in) has only one path. Without such ends only the core is searched and cached:
        # nothing at all in a tree, where each client would otherwise cache a search over all the others.
        head: list[int] = []
        tail: list[int] = []
        while start != goal and len(self._out[start]) == 1 and len(head) < len(self._nodes):
            head.append(self._out[start][0])
            start = self._ends[head[-1]][1]
        while start != goal and len(self._in[goal]) == 1 and len(tail) < len(self._nodes):
            tail.append(self._in[goal][0])
            goal = self._ends[tail[-1]][0]
        if (start, goal) not in self._paths:
            core = () if start == goal else self._search(start, goal)
            if core is None:
                raise UserError(f"the network has no path from {source!r} to {target!r}")
            self._paths[start, goal] = core
        return (*head, *self._paths[start, goal], *reversed(tail))

    def client_links(self, clients: int, *, up: bool) -> NDArray[np.int64]:
        found = [(self._out if up else self._in)[self._find(f"client/{client}")] for client in range(clients)]
        for client, links in enumerate(found):
            if len(links) != 1:
                direction = "out of" if up else "into"
                raise UserError(f"expected one link {direction} 'client/{client}', found {len(links)}")
        return np.array(found, np.int64)[:, 0]

    def _find(self, node: Node) -> int:
        number = self._number.get(node)
        if number is None:
            raise unknown_node(node, [str(known) for known in self._nodes[:1000]])
        return number

    def _search(self, start: int, goal: int) -> tuple[int, ...] | None:
        best: dict[int, tuple[float, int]] = {start: (0.0, 0)}
        arrived_by: dict[int, int] = {}
        queue = [(0.0, 0, start)]
        while queue:
            latency, hops, node = heapq.heappop(queue)
            if node == goal:
                links: list[int] = []
                while node != start:
                    links.append(arrived_by[node])
                    node = self._ends[links[-1]][0]
                return tuple(reversed(links))
            if (latency, hops) > best[node]:
                continue
            for link in self._out[node]:
                neighbour = self._ends[link][1]
                cost = (latency + self.latency[link], hops + 1)
                if neighbour not in best or cost < best[neighbour]:
                    best[neighbour] = cost
                    arrived_by[neighbour] = link
                    heapq.heappush(queue, (*cost, neighbour))
        return None


def scale_topology(topology: Topology, factor: float) -> None:
    """Multiply the capacities of all links of a topology that no flow has used yet."""
    for link, capacity in enumerate(topology.capacity):
        topology.capacity[link] = capacity * factor


_KEPT = 4096
"""Cached routes: enough for all routes of a small fleet, and little memory for a large one."""


class Route(NamedTuple):
    """The least-latency path between two nodes: its links and their total latency (seconds), and all nodes on it."""

    links: tuple[int, ...]
    latency: float
    nodes: tuple[str, ...]


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
