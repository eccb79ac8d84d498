"""FedAvg without a server: an all-reduce around a ring (Patarasuk and Yuan 2009)."""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
import simpy
from pydantic import Field

from edgefl.methods.parts.payload import Part
from edgefl.simulation.clock import Clock
from edgefl.simulation.participation import Life
from edgefl.simulation.protocols.base import PROTOCOLS, Course
from edgefl.simulation.protocols.peers.turn import Peers, PeersSpec, Turn
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


@PROTOCOLS.register("ring_all_reduce")
class RingAllReduceSpec(PeersSpec):
    """All peers have the same model, the mean of what they trained; it is computed around a ring, without a server."""

    kind: Literal["ring_all_reduce"] = Field(description="ring_all_reduce: FedAvg around a ring, without a server")

    def course(self, world: World, book: RoundBook) -> Course:
        return RingAllReduce(world, book)

    def pairs(self, clients: int, seed: int) -> list[tuple[int, int]]:
        """All that can follow each other in a ring, since absent peers are left out of one."""
        return list(combinations(range(clients), 2))


class Ring:
    """The peers of one round in their order, and the chunks that each has received and not read."""

    def __init__(self, env: Clock, members: list[int]) -> None:
        self.members, self.failed = members, not members
        self.chunks = {peer: simpy.Store(env) for peer in members}

    def arrived(self, receiver: int, delivery: Any) -> None:
        """The transfer of a chunk is over."""
        if not delivery.failed:
            self.chunks[receiver].put(delivery)


class RingAllReduce(Peers):
    """Reduce-scatter, then all-gather, each in n - 1 steps of one chunk of n.

    A peer's next step begins when its chunk has reached the next peer, and the previous peer's has arrived. A ring has
    the peers that are available when the first of them begins the round. If one leaves before it has finished, the
    round fails: all models stay as they were, and the next ring is formed.
    """

    def __init__(self, world: World, book: RoundBook) -> None:
        super().__init__(world, book)
        self._rings: dict[int, Ring] = {}

    def start(self) -> None:
        self.world.env.process(self._form(0))

    def _form(self, round: int) -> Life:
        """Form the ring of a round when a peer is available, and let the members begin that are in no round."""
        available = np.flatnonzero(self.world.presence.available()).tolist()
        while not available:
            if not np.isfinite(seconds := self.world.presence.next_arrival()):
                self.world.accounts.stop("stalled")
                return
            yield self.world.env.timeout(seconds)
            available = np.flatnonzero(self.world.presence.available()).tolist()
        if round in self._rings:  # several peers ended a round at this instant
            return
        fits = [each for each in available if self.world.work.of(each, self.world.setup.sizes.blocks).fits]
        self._rings[round] = Ring(self.world.env, fits)
        for peer in available:
            if peer not in self._at:
                self.begin(peer, round)
        self.changed()

    def exchange(self, turn: Turn, parts: Sequence[Part]) -> Life:
        ring = self._rings[turn.round]
        place, count = ring.members.index(turn.client), len(ring.members)
        after = ring.members[(place + 1) % count]
        size, longer = divmod(sum(part.bytes for part in parts), count)
        for step in range(2 * (count - 1)):
            chunk = (place - step) % count
            sent = [Part(f"chunk {chunk}", size + (chunk < longer), turn.round)]
            exchange = self.world.traffic.exchange
            delivery = turn.sends(exchange(turn.client, after, sent, turn.round, turn.job.id.dispatch))
            delivery.callbacks.append(partial(ring.arrived, after))
            yield delivery & ring.chunks[turn.client].get()

    def over(self, turn: Turn) -> None:
        round = turn.round
        if turn.phase == "arrived":
            following = self._rings.get(round + 1)
            if round + 1 >= self.world.setup.rounds:
                return
            if following is None:
                self.world.env.process(self._form(round + 1))
            elif turn.client in following.members and not following.failed:
                self.begin(turn.client, round + 1)
        elif not (turn.refused or self._rings[round].failed):
            self._fail(round)

    def _fail(self, round: int) -> None:
        """The ring of a round is broken: all that began it, or a later one, stop; later rings are formed again."""
        self._rings[round].failed = True
        self._rings = {each: known for each, known in self._rings.items() if each <= round}
        for turn in [turn for each in sorted(self._turns) if each >= round for turn in self._turns[each]]:
            if not turn.over:
                del self._at[turn.client]
                turn.drop("dropped")
            elif turn.phase == "arrived":
                turn.phase = "dropped"
                turn.lose("dropped")
        for each in [each for each in self._turns if each > round]:
            del self._turns[each]

    def closes(self) -> bool:
        ring = self._rings.get(self.book.rounds_done)
        if ring is None:
            return False
        arrived = sum(turn.phase == "arrived" for turn in self._turns[self.book.rounds_done])
        return ring.failed or arrived == len(ring.members)

    def closed(self, round: int) -> None:
        del self._rings[round]
        if round + 1 not in self._rings:
            self.world.env.process(self._form(round + 1))
