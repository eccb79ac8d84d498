"""The course of synchronous rounds: pick a cohort, wait for its updates, close the round, aggregate."""

from collections.abc import Generator, Sequence

import simpy

from edgefl.record.kinds import Lost
from edgefl.simulation.participation import Life, Participation
from edgefl.simulation.prefetching import Broadcasting, Prefetch
from edgefl.simulation.protocols.base import RoundsSpec
from edgefl.simulation.protocols.round_by_round import RoundByRound
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


class Synchronous(RoundByRound):
    """One round after another; a round closes when all or enough updates have arrived, or at its deadline."""

    may_ask = True

    def __init__(self, world: World, book: RoundBook, spec: RoundsSpec) -> None:
        super().__init__(world, book, spec)
        self._prefetches: dict[int, Prefetch] = {}
        self._broadcasting = Broadcasting(world) if world.setup.method.payload.may_broadcast else None

    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        world = self.world
        closed = world.env.event()
        self._begin(round, cohort, alphas, closed)
        yield closed if self.seconds is None else closed | world.env.alarm(self.seconds)
        self._end("late")

    def picked(self, round: int, cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Wait until the clients that a selector asked for losses have evaluated the model.

        Only the cost takes time: each one's download, logged as a prefetch, and its forward pass; the cohort is already
        chosen, and keeps the download for its job. Clients without the memory for training are not charged. A deadline
        counts from the end of the evaluations.

        Not modelled: the bytes of the answers, waiting for each other, random slowdowns, and the loss of answers.
        """
        world, asked = self.world, self._decisions.asked
        if not asked:
            return
        answers = []
        for client, images in asked.items():
            if world.work.of(client, world.setup.sizes.blocks).fits:
                parts = world.downlink(client, round, None).parts
                prefetch = Prefetch(world, client, parts, round, awake=False, within_round=True)
                self._prefetches[client] = prefetch
                answers.append(world.env.process(self._evaluate(prefetch, client, round, images)))
        yield simpy.AllOf(world.env, answers)
        for client in sorted(asked.keys() - set(cohort)):
            if client in self._prefetches:
                self._prefetches.pop(client).drop()
        self._decisions.chose(round, cohort)

    def _evaluate(self, prefetch: Prefetch, client: int, round: int, images: int) -> Life:
        yield prefetch.delivery | prefetch.over
        if prefetch.usable:
            self.world.clients[client].has_base = True
            work = self.world.forward(client, round, images)
            yield self.world.env.timeout(work.seconds)
            self.world.evaluated(client, round, work, work.seconds)

    def prefetch(self, round: int) -> None:
        present = {each.client for each in self.participants}
        for client, parts in self.commit(round).items():
            self._prefetches[client] = Prefetch(self.world, client, parts, round, awake=client in present)

    def break_off(self) -> None:
        super().break_off()
        self._end("unfinished")
        for prefetch in self._prefetches.values():
            prefetch.drop()

    def _end(self, fate: Lost) -> None:
        for participant in self.participants:
            participant.drop(fate)
        if self._broadcasting is not None:
            self._broadcasting.round_closes()

    def _begin(self, round: int, cohort: Sequence[int], alphas: dict[int, int], closed: simpy.Event) -> None:
        world = self.world
        present = set(cohort)
        arrivals = 0

        def close(_: object = None) -> None:
            if not closed.triggered:
                closed.succeed()

        def left(participant: Participation) -> None:
            nonlocal arrivals
            arrivals += participant.phase == "arrived"
            present.discard(participant.client)
            if not present:
                close()
            elif arrivals >= world.setup.enough(len(cohort)):
                # Updates that arrive at the same instant count, too.
                world.env.alarm(0.0).callbacks.append(close)

        self.participants = []
        for client in cohort:
            downlink = world.downlink(client, round, alphas.get(client))
            if self._broadcasting is not None:
                self._broadcasting.begins(client, round, downlink)
            participant = self.participation(client, round, downlink, alphas.get(client), left)
            participant.prefetch = self._prefetches.pop(client, None)
        for participant in self.participants:
            if participant.work.fits:
                participant.begin()
            else:
                participant.refuse()
        if self._broadcasting is not None:
            self._broadcasting.begin(round, cohort)
