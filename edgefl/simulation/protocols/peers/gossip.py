"""Gossip: each peer trains its own model and averages it with those of its neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Literal

import networkx as nx
import numpy as np
import simpy
from pydantic import Field

from edgefl.errors import UserError, locating
from edgefl.methods.parts.payload import Part
from edgefl.simulation.participation import Life
from edgefl.simulation.protocols.base import PROTOCOLS, Course
from edgefl.simulation.protocols.peers.overlays import (
    Exchanges,
    Mixes,
    Neighbours,
    Shape,
    exchanges,
    overlay,
    spectral_gap,
    weights_of,
    without,
)
from edgefl.simulation.protocols.peers.turn import Peers, PeersSpec, Turn
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.traffic import Delivery
from edgefl.simulation.world import World
from edgefl.training.job import PeerMixing
from edgefl.units import ShortSeconds

Message = tuple[int, int, int]
"""The round, the sender and the receiver of a model."""

PUSHED = Part("weight", 8, 0)
"""The weight of push-sum, float64."""


@PROTOCOLS.register("gossip")
class GossipSpec(PeersSpec):
    """Peers average with their neighbours; there is no server.

    The default is decentralised SGD with local steps; D-PSGD (Lian et al. 2017, Alg. 1) is ``order: mix_with_gradient``
    with one local step; random pairs (Boyd et al. 2006) are ``exchange: pairwise``; stochastic gradient push (Assran et
    al. 2019) is ``mixing: push_sum`` over a directed graph.
    """

    own_models = True

    kind: Literal["gossip"] = Field(description="gossip: peers average with their neighbours, without a server")
    neighbours: Neighbours = Field(default=Shape(kind="ring"), description="who may send to whom: a kind of graph")
    exchange: Exchanges = Field(
        default="all", description="all: each round with all neighbours; one_random: each sends to a random one; "
        "pairwise: random pairs of neighbours send to each other"
    )  # fmt: skip
    mixing: Mixes = Field(default="metropolis", description="the weights of what a peer receives; see the page")
    order: Literal["train_then_mix", "mix_with_gradient"] = Field(
        "train_then_mix", description="trained models are averaged, or those before training, and the change is added"
    )
    waits: Literal["received", "received_and_sent"] = Field(
        "received", description="for the neighbours' models, or also until its own have arrived"
    )
    deadline: ShortSeconds | None = Field(None, gt=0, description="of a peer's round, in which it waits; null: none")

    def by_arrival(self) -> str | None:
        return None if self.deadline is None else "deadline"

    def course(self, world: World, book: RoundBook) -> Course:
        return Gossip(world, book, self)

    def accept(self, clients: int, seed: int) -> nx.DiGraph[int]:
        """The graph of neighbours; UserError if its weights do not fit."""
        with locating(field="neighbours"):
            graph = overlay(self.neighbours, clients, seed)
        symmetric = self.exchange != "one_random" and all(graph.has_edge(there, here) for here, there in graph.edges)
        if not symmetric and self.mixing in ("metropolis", "max_degree"):
            raise UserError(f"'{self.mixing}' needs exchanges both ways; expected push_sum or uniform", field="mixing")
        if self.exchange == "pairwise" and not symmetric:
            raise UserError("pairs need edges in both directions; expected all or one_random", field="exchange")
        return graph

    def pairs(self, clients: int, seed: int) -> list[tuple[int, int]]:
        return sorted({(min(edge), max(edge)) for edge in self.accept(clients, seed).edges})


class Gossip(Peers):
    """Peers on a graph, each in its own round; there is no barrier but that of its neighbours.

    A peer computes, sends its model to the receivers of its round, and waits for the models of its senders of the same
    round. A peer that is away is not waited for or sent to, and joins the round after the latest one of its neighbours.
    One that leaves while it exchanges averages what it has received; one that leaves while it computes keeps its model.
    """

    def __init__(self, world: World, book: RoundBook, spec: GossipSpec) -> None:
        super().__init__(world, book)
        self._spec, seed = spec, world.setup.seed
        self.graph = spec.accept(world.setup.clients, seed)
        self._round = dict.fromkeys(self.peers, 0)  # the round that each peer is in, or joins next
        self._away: set[int] = set()
        self._flows: dict[Message, Delivery] = {}
        self._sent = dict.fromkeys(self.peers, -1)  # the latest round whose messages each peer has sent
        self._received: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)  # by round, (sender, receiver)
        self._ready: dict[Turn, simpy.Event] = {}
        self._of = lru_cache(64)(lambda round: exchanges(self.graph, spec.exchange, seed, round))

    def start(self) -> None:
        spec, weights = self._spec, weights_of(self.graph, self._spec.mixing)
        gap = spectral_gap(weights) if spec.exchange == "all" else None
        edges = [list(edge) for edge in self.graph.edges]
        self.world.decided(0, "neighbours", frozenset(), edges=edges, spectral_gap=gap)
        for peer in self.peers:
            self.begin(peer, 0)

    def begin(self, peer: int, round: int) -> None:
        self._round[peer] = round
        if round < self.world.setup.rounds:
            super().begin(peer, round)

    def exchange(self, turn: Turn, parts: Sequence[Part]) -> Life:
        round, peer = turn.round, turn.client
        if self._spec.mixing == "push_sum":
            parts = (*parts, PUSHED)
        if self._spec.deadline is not None:
            left = max(0.0, turn.began + self._spec.deadline - self.world.env.now)
            self.world.env.alarm(left).callbacks.append(lambda _: self._end_wait(turn))
        self._sent[peer] = round
        for other in self._of(round).successors(peer):
            if other not in self._away and self._round[other] <= round:
                delivery = self.world.traffic.exchange(peer, other, parts, round, turn.job.id.dispatch)
                self._flows[round, peer, other] = delivery
                delivery.callbacks.append(partial(self._delivered, (round, peer, other)))
        self._look(*self._of(round).successors(peer))
        if self._waits(turn):
            self._ready[turn] = self.world.env.event()
            yield self._ready[turn]

    def _waits(self, turn: Turn) -> bool:
        """True if a message for its round may still arrive, or one of its own is not complete."""
        round, peer, graph = turn.round, turn.client, self._of(turn.round)
        sends = self._spec.waits == "received_and_sent"
        if sends and any((round, peer, other) in self._flows for other in graph.successors(peer)):
            return True
        return any(self._comes((round, other, peer)) for other in graph.predecessors(peer))

    def _comes(self, message: Message) -> bool:
        round, sender, _ = message
        if message in self._flows:
            return True
        return self._sent[sender] < round and sender not in self._away and self._round[sender] <= round

    def _look(self, *peers: int) -> None:
        """End the exchanges of these peers that wait for nothing any more."""
        for peer in peers:
            turn = self._at.get(peer)
            if turn in self._ready and not self._waits(turn):
                self._end_wait(turn)

    def _end_wait(self, turn: Turn) -> None:
        if turn in self._ready:
            self._ready.pop(turn).succeed()

    def _delivered(self, message: Message, _: object) -> None:
        round, sender, receiver = message
        delivery = self._flows.pop(message, None)
        if delivery is not None:  # else it was cancelled at this instant
            if not delivery.failed:
                self._received[round].add((sender, receiver))
            self._look(sender, receiver)

    def _cancel(self, *messages: Message) -> None:
        for message in messages:
            self.world.traffic.cancel(self._flows.pop(message))
        self._look(*sorted({peer for message in messages for peer in message[1:]}))

    def leaves_exchange(self, turn: Turn) -> bool:
        self._leaves(turn.client)
        return True

    def _leaves(self, peer: int) -> None:
        """A device is away: what it sends and receives is aborted, and nobody waits for it."""
        self._away.add(peer)
        self._cancel(*[message for message in self._flows if peer in message[1:]])
        self._look(*self.graph.successors(peer))

    def over(self, turn: Turn) -> None:
        peer, round = turn.client, turn.round
        self._ready.pop(turn, None)
        if turn.entered:
            self._round[peer] = round + 1
        if turn.phase == "arrived" and peer not in self._away:
            late = [(round, other, peer) for other in self._of(round).predecessors(peer)]
            self._cancel(*[message for message in late if message in self._flows])
            self.begin(peer, round + 1)
            return
        self._leaves(peer)
        if not turn.refused:
            self.world.env.process(self._return(peer))

    def _return(self, peer: int) -> Life:
        """Wait until an absent device is back, perhaps for ever; then the peer begins another round."""
        presence = self.world.presence
        while not presence.available()[peer]:
            if not np.isfinite(seconds := presence.next_arrival(np.array([peer]))):
                return
            yield self.world.env.timeout(seconds)
        near = {*self.graph.successors(peer), *self.graph.predecessors(peer)} - self._away
        began = max((self._round[other] + 1 for other in near), default=0)
        self._away.discard(peer)
        self.begin(peer, max(self._round[peer], self.book.rounds_done, began))
        self.changed()

    def closes(self) -> bool:
        round = self.book.rounds_done
        present = [each for peer, each in self._round.items() if peer not in self._away]
        left = any(each > round for each in self._round.values())
        return left and all(each > round for each in present)

    def closed(self, round: int) -> None:
        for peer in self._away:
            self._round[peer] = max(self._round[peer], round + 1)

    def mixing(self, round: int, arrived: set[int]) -> PeerMixing:
        graph, spec, received = self._of(round), self._spec, self._received.pop(round, set())
        missing = tuple(edge for edge in sorted(graph.edges) if edge not in received or edge[1] not in arrived)
        weights = without(weights_of(graph, spec.mixing), missing, spec.mixing)
        return PeerMixing(weights, missing, spec.order == "mix_with_gradient", push_sum=spec.mixing == "push_sum")

    def break_off(self) -> None:
        self._away = set(self.peers)  # nobody begins another round
        for message in list(self._flows):
            self.world.traffic.cancel(self._flows.pop(message))
        super().break_off()
