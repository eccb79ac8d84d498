"""The graph of peers that exchange models, the exchanges of a round, and the weights with which peers average."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from edgefl.errors import UserError
from edgefl.input_file import InputFile, find_input
from edgefl.network.tree import graph_in
from edgefl.options import Options, of_kind
from edgefl.randomness import generator, integer_seed

Matrix = NDArray[np.float64]
Mixes = Literal["metropolis", "uniform", "max_degree", "push_sum"]
Names = Literal["ring", "torus", "grid", "complete", "exponential"]
Exchanges = Literal["all", "one_random", "pairwise"]

DRAWS = 100
"""The random graphs that are drawn until one of them is connected."""


class Shape(Options):
    """A graph that follows from the number of peers.

    A torus and a grid are as square as the number allows; in the exponential graph peer i has the neighbours i ± 2^j
    (Ying et al. 2021).

    >>> sorted(Shape(kind="exponential").graph(8, seed=0).neighbors(0))
    [1, 2, 4, 6, 7]
    """

    kind: Names = Field(description="the graph of neighbours")
    directed: bool = Field(False, description="ring and exponential only: send to the next ones alone")

    def graph(self, peers: int, seed: int) -> Any:
        """The graph of peers 0, 1, …, directed or not; ``seed`` is that of the run."""
        if self.directed and self.kind not in ("ring", "exponential"):
            raise UserError(f"expected false for '{self.kind}'", field="neighbours.directed")
        if self.kind in ("torus", "grid"):
            rows = next(each for each in range(math.isqrt(peers), 0, -1) if peers % each == 0)
            # In a torus of width 2 both edges between two neighbours would be one.
            if rows < (least := 3 if self.kind == "torus" else 2):
                raise UserError(f"expected rows and columns of {least} or more peers, and {peers} clients have none")
            grid = nx.grid_2d_graph(rows, peers // rows, periodic=self.kind == "torus")
            return nx.convert_node_labels_to_integers(grid, ordering="sorted")
        if self.kind == "complete":
            return nx.complete_graph(peers)
        hops = [1] if self.kind == "ring" else [2**power for power in range((peers - 1).bit_length())]
        edges = [(peer, (peer + hop) % peers) for peer in range(peers) for hop in hops]
        return nx.DiGraph(edges) if self.directed else nx.Graph(edges)


class Drawn(Options):
    """A random graph: the first connected one of up to 100 draws, the same for all methods of a seed."""

    kind: Literal["k_regular", "erdos_renyi", "small_world"] = Field(
        description="k_regular: all have k neighbours; erdos_renyi: each two are neighbours with probability p; "
        "small_world: a ring of the k nearest ones, of which each edge is rewired with probability p (Watts-Strogatz)"
    )
    k: int | None = Field(default=None, ge=1, description="neighbours of each peer; not for erdos_renyi")
    p: float | None = Field(default=None, gt=0, le=1, description="a probability; not for k_regular")

    def graph(self, peers: int, seed: int) -> Any:
        wanted = {"k_regular": ("k",), "erdos_renyi": ("p",), "small_world": ("k", "p")}[self.kind]
        given = {name: value for name in ("k", "p") if (value := getattr(self, name)) is not None}
        if tuple(given) != wanted:
            raise UserError(f"expected {' and '.join(wanted)} for '{self.kind}', found {' and '.join(given) or 'none'}")
        makers: dict[str, Any] = {
            "k_regular": lambda seed: nx.random_regular_graph(self.k or 0, peers, seed),
            "erdos_renyi": lambda seed: nx.gnp_random_graph(peers, self.p or 0.0, seed),
            "small_world": lambda seed: nx.watts_strogatz_graph(peers, self.k or 0, self.p or 0.0, seed),
        }
        for draw in range(DRAWS):
            try:
                graph = makers[self.kind](integer_seed(seed, "neighbours", draw) % 2**32)
            except nx.NetworkXError:
                even = ", and an even number, as that of the clients is odd" * (peers % 2 and (self.k or 0) < peers)
                raise UserError(
                    f"expected fewer than {peers} neighbours{even}, found {self.k}", field="neighbours.k"
                ) from None
            if nx.is_connected(graph):
                return graph
        raise UserError(f"none of {DRAWS} drawn graphs of {peers} clients was connected; expected more neighbours")


class FileGraph(Options):
    """A graph of yours, whose nodes are named 0, 1, and so on, or client/0, client/1."""

    kind: Literal["file"] = Field(description="file: a graph from a GraphML file, or node-link JSON")
    path: InputFile = Field(description="the file (.graphml or .json); a directed graph sends along its edges")

    def graph(self, peers: int, seed: int) -> Any:
        graph = graph_in(find_input(self.path), self.path)
        names = {node: str(node).removeprefix("client/") for node in graph.nodes}
        if sorted(names.values()) != sorted(map(str, range(peers))):
            raise UserError(f"expected the nodes 0 to {peers - 1}, one for each client", file=self.path)
        return nx.relabel_nodes(graph, {node: int(name) for node, name in names.items()})


Neighbours = Annotated[
    Shape | Drawn | FileGraph,
    Field(discriminator="kind"),
    BeforeValidator(of_kind, json_schema_input_type=Names | Shape | Drawn | FileGraph),
]
"""``protocol.neighbours``: a kind, or a mapping with ``kind`` and its options."""


def overlay(neighbours: Shape | Drawn | FileGraph, peers: int, seed: int) -> nx.DiGraph[int]:
    """The graph of so many peers, an edge from each to those that it sends to; UserError if it is not connected."""
    if peers < 2:
        raise UserError(f"peers need neighbours; expected two or more clients, found {peers}")
    graph = neighbours.graph(peers, seed).to_directed()
    ordered: nx.DiGraph[int] = nx.DiGraph()
    ordered.add_nodes_from(range(peers))
    ordered.add_edges_from(sorted((sender, receiver) for sender, receiver in graph.edges if sender != receiver))
    if not nx.is_strongly_connected(ordered):
        raise UserError("some peers can never receive what others have learned; expected a connected graph")
    return ordered


def exchanges(graph: nx.DiGraph[int], exchange: Exchanges, seed: int, round: int) -> nx.DiGraph[int]:
    """Who sends to whom in a round (from 0): all edges, one random one of each peer, or a random matching.

    A matching has the edges in random order, each that meets no earlier one. Draws are keyed by the round.
    """
    if exchange == "all":
        return graph
    numbers = generator(seed, "exchange", round)
    chosen: nx.DiGraph[int] = nx.DiGraph()
    chosen.add_nodes_from(graph.nodes)
    if exchange == "one_random":
        draws = numbers.random(len(graph))
        for peer, draw in zip(graph.nodes, draws.tolist(), strict=True):
            receivers = sorted(graph.successors(peer))
            chosen.add_edge(peer, receivers[int(draw * len(receivers))])
        return chosen
    pairs = sorted((one, other) for one, other in graph.edges if one < other)
    for place in numbers.permutation(len(pairs)).tolist():
        one, other = pairs[place]
        if not (chosen.degree(one) or chosen.degree(other)):
            chosen.add_edges_from([(one, other), (other, one)])
    return chosen


def weights_of(graph: nx.DiGraph[int], mixing: Mixes) -> Matrix:
    """The weights W ``[peers, peers]`` of a round: peer i takes w_ij of what peer j sent.

    metropolis: w_ij = 1 / (1 + max(d_i, d_j)); max_degree: 1 / (1 + max d); uniform: 1 / (1 + the number that i
    receives); w_ii is the rest of 1. push_sum: 1 / (1 + the number that j sends), also of j itself, so columns sum to 1
    (Kempe et al. 2003).

    >>> weights_of(nx.path_graph(3).to_directed(), "metropolis")[0].round(3).tolist()
    [0.667, 0.333, 0.0]
    """
    sent: Matrix = nx.to_numpy_array(graph, range(len(graph))).T  # [receiver, sender]
    into, out = sent.sum(axis=1), sent.sum(axis=0)
    degrees = {
        "push_sum": out,
        "uniform": into[:, np.newaxis],
        "max_degree": into.max(),
        "metropolis": np.maximum.outer(into, into),
    }
    weights: Matrix = sent / (1 + degrees[mixing])
    np.fill_diagonal(weights, 1 - weights.sum(axis=0 if mixing == "push_sum" else 1))
    return weights


def without(weights: Matrix, missing: Iterable[tuple[int, int]], mixing: Mixes) -> Matrix:
    """The weights if messages are missing: receivers, or with push_sum senders, keep theirs for their own model."""
    kept = weights.copy()
    for sender, receiver in missing:
        keeper = sender if mixing == "push_sum" else receiver
        kept[keeper, keeper] += kept[receiver, sender]
        kept[receiver, sender] = 0.0
    return kept


def spectral_gap(weights: Matrix) -> float:
    """1 - the second largest modulus of the eigenvalues of ``weights`` ``[peers, peers]``.

    The squared distance of models from their mean shrinks at least by the square of this modulus, if weights are
    symmetric.

    >>> round(spectral_gap(weights_of(Shape(kind="torus").graph(9, 0), "metropolis")), 12)
    0.6
    """
    return float(1 - np.sort(np.abs(np.linalg.eigvals(weights)))[-2])
