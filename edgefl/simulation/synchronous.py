"""Synchronous rounds: pick a cohort, wait for its updates, close the round, aggregate."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Sequence

import simpy

from edgefl.network.allotment import Outlook
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.participation import Participation
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.protocol_specs import SynchronousSpec
from edgefl.simulation.round_by_round import RoundByRound
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World
from edgefl.training.faults import blaming


class Broadcast:
    """The transfer of a round's model to one client that does not take part in the round.

    Its bytes belong to the client's next job. The client is awake during the transfer.
    """

    def __init__(self, world: World, client: int, round: int) -> None:
        self._world = world
        self._client, self._round, self._dispatch = client, round, world.dispatches(client)
        self._over = False
        self.complete = False
        parts = world.downlink(client, round, None).parts
        outlook = None if world.setup.bandwidth is None else Outlook()
        self._delivery: Delivery = world.traffic.send(
            client, "down", parts, round, self._dispatch, item="broadcast", outlook=outlook
        )
        world.presence.prefetches(client, self.drop)
        if self._delivery.callbacks is not None:
            self._delivery.callbacks.append(lambda _: self.end())

    def end(self) -> None:
        """The transfer is complete or has failed; one in progress is aborted. No effect if that was noticed before."""
        if self._over:
            return
        self._over, sent, world = True, self._delivery, self._world
        world.presence.prefetched(self._client, self.drop)
        self.complete = sent.ended is not None and not sent.failed
        world.traffic.cancel(sent)
        seconds = (world.now if sent.ended is None else sent.ended) - sent.started
        world.waited(self._client, self._round, self._dispatch, seconds, prefetching=True)
        if self.complete:
            world.received(self._client, self._round)
        else:
            self.lose()

    def drop(self) -> None:
        """The client crashes."""
        self.end()

    def lose(self) -> None:
        """The client's next job does not use it."""
        self._world.lost(self._client, self._round, self._dispatch, "prefetched_in_vain")


class Broadcasting:
    """The broadcasts of a run.

    In a round whose payload says so, all clients that are available at the beginning of the round and have the memory
    for a job are sent the model, at the same time as the cohort. The round does not wait for them. When it closes, the
    transfers in progress are aborted, because a newer model exists.

    A client's next job that receives only the last blocks continues from the blocks of its newest broadcast, if no
    other job was computed since. If it receives the whole model, or another broadcast, the broadcast was in vain.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._unused: dict[int, Broadcast] = {}
        self._under_way: list[Broadcast] = []

    def begin(self, round: int, cohort: Collection[int]) -> None:
        world, setup = self._world, self._world.setup
        with blaming(setup.label, round, "payload"):
            if not setup.method.payload.broadcasts(round):
                return
        blocks, available = setup.sizes.blocks, world.presence.available()
        for client in sorted(set(available.nonzero()[0].tolist()) - set(cohort)):
            if world.work.of(client, blocks).fits:
                self._not_used(client)
                self._unused[client] = broadcast = Broadcast(world, client, round)
                self._under_way.append(broadcast)

    def begins(self, client: int, alpha: int) -> None:
        """The client takes part, and is sent the last ``alpha`` blocks."""
        if alpha == self._world.setup.sizes.blocks:
            self._not_used(client)
        self._unused.pop(client, None)

    def round_closes(self) -> None:
        for broadcast in self._under_way:
            broadcast.end()
        self._under_way = []

    def _not_used(self, client: int) -> None:
        broadcast = self._unused.pop(client, None)
        if broadcast is not None and broadcast.complete:
            broadcast.lose()


class Synchronous(RoundByRound):
    """One round after another; a round closes when all or enough updates have arrived, or at its deadline."""

    may_ask = True

    def __init__(self, world: World, book: RoundBook, spec: SynchronousSpec) -> None:
        super().__init__(world, book, spec)
        self._prefetches: dict[int, Prefetch] = {}
        self._broadcasting = Broadcasting(world)

    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        world = self.world
        closed = world.env.event()
        self._begin(round, cohort, alphas, closed)
        yield closed if self.seconds is None else closed | world.alarm(self.seconds)
        for participant in self.participants:
            participant.drop("late")
        self._broadcasting.round_closes()

    def picked(self, round: int, cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Wait until the clients that a selector asked for losses have evaluated the model.

        Only the cost takes time: each client's download, and its forward pass. The losses do not depend on it, so the
        cohort is already chosen. A client that is in the cohort has the model for its job. A download is logged as a
        prefetch, because the client may not take part. A client whose memory cannot hold its training is not charged;
        it is refused if it is picked. A deadline counts from the end of the evaluations.

        Not modelled: the four bytes of the answer, the waiting of candidates for each other, and random slowdowns. A
        client that leaves before it has answered counts as if it had answered.
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

    def _evaluate(
        self, prefetch: Prefetch, client: int, round: int, images: int
    ) -> Generator[simpy.Event, object, None]:
        yield prefetch.delivery | prefetch.over
        if prefetch.usable:
            seconds = self.world.forward_seconds(client, round, images)
            yield self.world.env.timeout(seconds)
            self.world.evaluated(client, round, images, seconds)

    def prefetch(self, round: int) -> None:
        present = {each.client for each in self.participants}
        for client, parts in self.commit(round).items():
            self._prefetches[client] = Prefetch(self.world, client, parts, round, awake=client in present)

    def break_off(self) -> None:
        for participant in self.participants:
            participant.drop("unfinished")
        for prefetch in self._prefetches.values():
            prefetch.drop()
        self._broadcasting.round_closes()

    def _begin(self, round: int, cohort: Sequence[int], alphas: dict[int, int], closed: simpy.Event) -> None:
        world = self.world
        present = set(cohort)
        arrivals = 0

        def left(participant: Participation) -> None:
            nonlocal arrivals
            arrivals += participant.phase == "arrived"
            present.discard(participant.client)
            if (not present or arrivals >= world.setup.cohort) and not closed.triggered:
                closed.succeed()

        deadline = self.deadline()
        closes = math.inf if self.seconds is None else world.now + self.seconds
        self.participants = []
        for client in cohort:
            chosen = alphas.get(client)
            downlink = world.downlink(client, round, chosen)
            self._broadcasting.begins(client, downlink.alpha)
            participant = Participation(
                world,
                client,
                round,
                downlink,
                chosen=chosen,
                on_downloaded=self.downloaded,
                on_left=left,
                prefetch=self._prefetches.pop(client, None),
                deadline=deadline,
                closes=closes,
                plan=self.plans.get(client),
            )
            self.participants.append(participant)
        for participant in self.participants:
            if participant.work.fits:
                world.env.process(participant.live())
            else:
                participant.refuse()
        self._broadcasting.begin(round, cohort)
