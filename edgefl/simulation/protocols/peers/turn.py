"""A peer's part in one round, and what protocols without a server have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Generator, Sequence
from typing import Any

import simpy

from edgefl.methods.fits import Need
from edgefl.methods.parts.payload import Downlink, Part
from edgefl.methods.parts.server import Weighting
from edgefl.simulation.participation import Life, Participation
from edgefl.simulation.protocols.base import ProtocolSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.traffic import Delivery
from edgefl.simulation.world import World
from edgefl.training.job import PeerMixing


class PeersSpec(ProtocolSpec):
    """What protocols without a server take from methods and from the rest of a scenario."""

    needs = frozenset[Need]({"whole model", "one size", "server start", "shared model", "plain traffic"})
    has_rounds = False

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        reason = f"with protocol.kind {self.kind} there is none; expected synchronous, asynchronous or hierarchical"
        takes: tuple[Need, ...] = "server", "each update", "rounds", "deadline", "server's links", "early cohort"
        return dict.fromkeys(takes, reason)

    def under_way(self, cohort: int) -> int:
        return cohort

    def by_arrival(self) -> str | None:
        return None


class Turn(Participation):
    """A peer in one round: it computes, then exchanges with other peers; nothing is downloaded before."""

    def __init__(self, course: Peers, client: int, round: int) -> None:
        world = course.world
        blocks = world.setup.sizes.blocks
        super().__init__(world, client, round, Downlink((), blocks), world.work.of(client, blocks), on_left=course.left)
        self.course, self.began = course, self._env.now

    def _upload(self, parts: Sequence[Part]) -> Life:
        yield from self.course.exchange(self, parts)

    def sends(self, delivery: Delivery) -> Delivery:
        """Leave the round if this transfer fails, and abort it if the peer leaves."""
        self._deliveries = [self._following(delivery)]
        return delivery

    def quit(self, reason: str) -> None:
        if self.phase != "upload" or not self.course.leaves_exchange(self):
            super().quit(reason)
            return
        self._life.close()
        self.world.wrote("dropout", *self.job.place, item=reason)
        self.finish()


class Peers(ABC):
    """A run without a server: each peer at its own pace; a round closes when the last peer has left it."""

    def __init__(self, world: World, book: RoundBook) -> None:
        self.world, self.book, self.peers = world, book, range(world.setup.clients)
        self._change = world.env.event()
        self._turns: defaultdict[int, list[Turn]] = defaultdict(list)  # by round, until it closes
        self._at: dict[int, Turn] = {}  # each peer's present turn

    def run(self) -> Generator[simpy.Event, object, None]:
        world = self.world
        world.round_begins(0, self.peers)
        self.start()
        while True:
            while self.closes():
                round = self.book.rounds_done
                turns = self._turns.pop(round, [])
                arrived = sorted((each for each in turns if each.phase == "arrived"), key=lambda each: each.client)
                self.book.close(round, turns, arrived, self.mixing(round, {each.client for each in arrived}))
                if world.stopped.triggered:
                    return
                if self.book.rounds_done >= world.setup.rounds:
                    world.accounts.stop("rounds")
                    return
                world.round_begins(self.book.rounds_done, self.peers)
                self.closed(round)
            self._change = world.env.event()
            yield self._change
            yield world.env.alarm(0.0)

    def changed(self) -> None:
        """Look, at the end of this instant, whether a round closes."""
        if not self._change.triggered:
            self._change.succeed()

    def begin(self, peer: int, round: int) -> None:
        """The peer begins a round."""
        turn, present = Turn(self, peer, round), self.world.presence.available()[peer]
        self._at[peer] = turn
        self.world.seen[peer] |= present
        self.world.picks[peer] += present
        self._turns[round].append(turn)
        if turn.work.fits:
            turn.begin()
        else:
            turn.refuse()

    def left(self, turn: Any) -> None:
        """A turn is over."""
        del self._at[turn.client]
        self.over(turn)
        self.changed()

    def break_off(self) -> None:
        for turn in list(self._at.values()):
            turn.drop("unfinished")

    @abstractmethod
    def start(self) -> None:
        """The run begins: the first peers begin their first round."""

    @abstractmethod
    def exchange(self, turn: Turn, parts: Sequence[Part]) -> Life:
        """What a peer does with the parts of its model after it has computed."""

    @abstractmethod
    def over(self, turn: Turn) -> None:
        """A peer has left a round, with its update (``arrived``) or without."""

    @abstractmethod
    def closes(self) -> bool:
        """True if the first open round can close."""

    @abstractmethod
    def closed(self, round: int) -> None:
        """The round has closed."""

    def mixing(self, round: int, arrived: set[int]) -> PeerMixing | None:
        """How the models of peers are averaged after a round that these finished; None: they are all the same."""
        return None

    def leaves_exchange(self, turn: Turn) -> bool:
        """A peer leaves while it exchanges; True if its training counts nevertheless."""
        return False
