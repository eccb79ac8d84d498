"""Build the links of a run from a scenario's ``network:``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from edgefl.errors import UserError, nearest
from edgefl.files import read_json, read_text
from edgefl.input_file import find_input
from edgefl.network.specs import CellsTopology, FileTopology, LinkSpec, StarTopology
from edgefl.network.topology import GraphLinks, Node, Topology
from edgefl.network.tree import TreeLinks


def build_topology(
    spec: StarTopology | CellsTopology | FileTopology,
    links: Mapping[str, LinkSpec],
    link_of_client: Sequence[str],
    *,
    folder: Path | None = None,
) -> Topology:
    """The links between ``server`` and ``client/0``, ``client/1``, … as a scenario describes them.

    In a star and in cells the clients' own capacities are still 0 here, for
    :class:`~edgefl.network.client_links.ClientLinks` to set. In a file, a client's link may replace those of the file.
    """
    for name in dict.fromkeys(link_of_client):
        if name not in links:
            raise UserError(f"unknown link '{name}'; {nearest(name, links)}")
    if isinstance(spec, FileTopology):
        graph = _read_graph(spec, len(link_of_client), folder)
        try:
            return GraphLinks(graph, sharing=spec.sharing)
        except UserError as error:
            raise error.located(file=spec.file) from None
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


def _read_graph(spec: FileTopology, clients: int, folder: Path | None) -> nx.DiGraph[Node]:
    """Server and clients are renamed to ``server`` and ``client/k``."""
    file = find_input(spec.file, folder)
    graph: Any
    try:
        if file.suffix == ".graphml":
            graph = nx.parse_graphml(read_text(file, what="a graph"))
        elif file.suffix == ".json":
            data = read_json(file)
            graph = nx.node_link_graph(data, edges="links" if "links" in data else "edges")
        else:
            raise UserError(f"expected a .graphml or .json file, found '{file.suffix}'", file=spec.file)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, nx.NetworkXException) as error:
        raise UserError(f"expected a networkx graph ({type(error).__name__}: {error})", file=spec.file) from None
    if graph.is_multigraph() or not graph.is_directed():
        raise UserError("expected a directed graph without parallel edges", file=spec.file)
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
