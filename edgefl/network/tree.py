"""Stars and cells of any size as arrays: no graph, and a few bytes for each client.

``server`` - ``internet`` - ``client/0``, ``client/1``, … or, in cells, ``server`` - ``internet`` - ``cell/0`` -
``client/0``, …; every edge in both directions. Links 0 and 1 are the server's (down, up), followed by each cell's and
then each client's, down before up.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from edgefl.errors import UserError, locating, nearest
from edgefl.files import read_json, read_text
from edgefl.input_file import find_input
from edgefl.network.specs import CellsTopology, FileTopology, LinkSpec, StarTopology
from edgefl.network.topology import GraphLinks, Node, Sharing, Topology, no_link, unknown_node

SERVER = "server"
INTERNET = "internet"

_NUMBER = re.compile("0|[1-9][0-9]{0,8}")
"""As it is written in a node's name: each node has one name only."""


class TreeLinks:
    """The links of a star, or of cells behind their backhaul.

    >>> star = TreeLinks(server=(1e9, 1e9), down=[8e6, 4e6], up=[1e6, 1e6], latency=0.02)
    >>> star.path("server", "client/1"), star.path("client/1", "server")
    ((0, 4), (5, 1))
    >>> star.ends(4), star.latency[4]
    (('internet', 'client/1'), 0.02)
    """

    def __init__(
        self,
        *,
        # the server's capacity (down, up), bit/s; *down* is from the server towards the clients
        server: tuple[float, float],
        down: Iterable[float],  # each client's downlink capacity, bit/s
        up: Iterable[float],  # each client's uplink capacity, bit/s
        # one-way seconds between the server and a client, for all or for each client
        latency: float | Iterable[float] = 0.0,
        backhaul: Sequence[tuple[float, float]] = (),  # each cell's capacity (down, up), bit/s; none for a star
        cell: Sequence[int] | None = None,  # each client's cell; needed where there are cells
        # how the clients of a cell share its channel, separately for down and up. wired: not at all. rate_fair: equal
        # rates, each using time in proportion to 1/capacity (WiFi's anomaly: Heusse et al., INFOCOM 2003).
        # airtime_fair: equal shares of the time, so rates in proportion to capacity (proportionally fair cells).
        sharing: Sharing = "wired",
    ) -> None:
        access = array("d", chain.from_iterable(zip(down, up, strict=True)))
        self.clients = count = len(access) // 2
        latencies = repeat(latency, count) if isinstance(latency, int | float) else latency
        self.cells = len(backhaul)
        self._cell = array("q", cell) if backhaul and cell is not None else None
        self.airs = 0 if sharing == "wired" else 2 * self.cells
        self.airtime_fair = sharing == "airtime_fair"
        self.capacity = array("d", chain(server, *backhaul)) + access
        self.latency = array("d", [0.0] * (2 + 2 * self.cells))
        self.latency.extend(seconds for seconds in latencies for _ in ("down", "up"))

    def air(self, link: int) -> int:
        """One channel for each cell and direction."""
        first = 2 + 2 * self.cells
        if not self.airs or link < first or self._cell is None:
            return -1
        return 2 * self._cell[(link - first) // 2] + link % 2

    def link(self, source: Node, target: Node) -> int:
        if (source, target) in {(SERVER, INTERNET), (INTERNET, SERVER)}:
            return int(source == INTERNET)
        for near, far, up in ((source, target, 0), (target, source, 1)):
            chain = self._chain(far)
            if chain and chain[0] and self._far_ends(chain[0])[0] == near:
                return chain[0] + up
        raise no_link(self, source, target)

    def ends(self, link: int) -> tuple[Node, Node]:
        down = self._far_ends(link - link % 2)
        return (down[1], down[0]) if link % 2 else down

    def path(self, source: Node, target: Node) -> tuple[int, ...]:
        up, down = self._chain(source), self._chain(target)
        while up and down and up[-1] == down[-1]:
            up.pop()
            down.pop()
        # The server is connected to the internet like a client, but its down link leads away from it.
        ascent = [link if link == 0 else link + 1 for link in up]
        return (*ascent, *[1 if link == 0 else link for link in reversed(down)])

    def client_links(self, clients: int, *, up: bool) -> NDArray[np.int64]:
        return 2 + 2 * self.cells + up + 2 * np.arange(clients)

    def _chain(self, node: Node) -> list[int]:
        """The down links between the node and the internet, the node's own first."""
        if node == SERVER:
            return [0]
        kind, _, written = str(node).partition("/")
        number = int(written) if _NUMBER.fullmatch(written) else -1
        if kind == "client" and 0 <= number < self.clients:
            own = 2 + 2 * self.cells + 2 * number
            return [own] if self._cell is None else [own, 2 + 2 * self._cell[number]]
        if kind == "cell" and 0 <= number < self.cells:
            return [2 + 2 * number]
        if node == INTERNET:
            return []
        known = [SERVER, INTERNET, *(f"cell/{c}" for c in range(min(self.cells, 1000)))]
        raise unknown_node(node, [*known, *(f"client/{c}" for c in range(min(self.clients, 1000)))])

    def _far_ends(self, down_link: int) -> tuple[Node, Node]:
        if down_link == 0:
            return SERVER, INTERNET
        if down_link < 2 + 2 * self.cells:
            return INTERNET, f"cell/{(down_link - 2) // 2}"
        client = (down_link - 2 - 2 * self.cells) // 2
        return (INTERNET if self._cell is None else f"cell/{self._cell[client]}"), f"client/{client}"


def build_topology(
    spec: StarTopology | CellsTopology | FileTopology,
    links: Mapping[str, LinkSpec],
    link_of_client: Sequence[str],
    *,
    folder: Path | None = None,
) -> Topology:
    """The links between ``server`` and ``client/0``, ``client/1``, … as a scenario describes them.

    Clients' capacities are 0, for :class:`~edgefl.network.client_links.ClientLinks` to set, or the file's.
    """
    for name in dict.fromkeys(link_of_client):
        if name not in links:
            raise UserError(f"unknown link '{name}'; {nearest(name, links)}")
    if isinstance(spec, FileTopology):
        graph = _read_graph(spec, len(link_of_client), folder)
        with locating(file=spec.file):
            return GraphLinks(graph, sharing=spec.sharing)
    latency_of = {name: spec.latency if link.latency is None else link.latency for name, link in links.items()}
    count = len(link_of_client)
    cells = spec.cells if isinstance(spec, CellsTopology) else 0
    return TreeLinks(
        server=(spec.server.down, spec.server.up),
        down=np.zeros(count),
        up=np.zeros(count),
        latency=[latency_of[name] for name in link_of_client],
        backhaul=[(spec.backhaul.down, spec.backhaul.up)] * cells if isinstance(spec, CellsTopology) else (),
        cell=[client % cells for client in range(count)] if cells else None,
        sharing=spec.sharing if isinstance(spec, CellsTopology) else "wired",
    )


def graph_in(file: Path, name: str) -> Any:
    """The networkx graph in a GraphML file or node-link JSON, which messages call ``name``."""
    try:
        if file.suffix == ".graphml":
            graph = nx.parse_graphml(read_text(file, what="a graph"))
        elif file.suffix == ".json":
            data = read_json(file)
            graph = nx.node_link_graph(data, edges="links" if "links" in data else "edges")
        else:
            raise UserError(f"expected a .graphml or .json file, found '{file.suffix}'", file=name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, nx.NetworkXException) as error:
        raise UserError(f"expected a networkx graph ({type(error).__name__}: {error})", file=name) from None
    if graph.is_multigraph():
        raise UserError("expected a graph without parallel edges", file=name)
    return graph


def _read_graph(spec: FileTopology, clients: int, folder: Path | None) -> nx.DiGraph[Node]:
    """Server and clients are renamed to ``server`` and ``client/k``."""
    graph = graph_in(find_input(spec.file, folder), spec.file)
    if not graph.is_directed():
        raise UserError("expected a directed graph", file=spec.file)
    names = [f"client/{k}" for k in range(clients)] if spec.clients is None else spec.clients
    if len(names) != clients:
        raise UserError(f"expected {clients} clients, found {len(names)}", field="clients", file=spec.file)
    new_names = {spec.server: "server", **{name: f"client/{k}" for k, name in enumerate(names)}}
    known = {str(node): node for node in graph.nodes}
    for name in new_names:
        if name not in known:
            raise UserError(f"the graph has no node '{name}'; {nearest(name, known)}", file=spec.file)
    if len(new_names) != clients + 1:
        raise UserError("expected different nodes for the server and the clients", file=spec.file)
    renamed: nx.DiGraph[Node] = nx.relabel_nodes(graph, {known[old]: new for old, new in new_names.items()})
    for node in graph.nodes:
        if str(node) not in new_names and str(node) in new_names.values():
            raise UserError(f"node '{node}' has a name that is reserved for another node", file=spec.file)
    return renamed
