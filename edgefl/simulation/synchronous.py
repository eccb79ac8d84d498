"""Synchronous rounds: pick a cohort, wait for its updates, close the round, aggregate."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence

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

    Args:
        world: the world of the run.
        client: the receiving client.
        round: the round, which is also the version of the model.

    Attributes:
        complete: whether the client has received the model.
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
        world.presence.prefetches(client, self)
        if self._delivery.callbacks is not None:
            self._delivery.callbacks.append(lambda _: self.end())

    def end(self) -> None:
        """The transfer is complete or has failed; one in progress is aborted. No effect if that was noticed before."""
        if self._over:
            return
        self._over, sent, world = True, self._delivery, self._world
        world.presence.prefetched(self._client, self)
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

    Args:
        world: the world of the run.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._unused: dict[int, Broadcast] = {}
        self._under_way: list[Broadcast] = []

    def begin(self, round: int, cohort: Collection[int]) -> None:
        """Send the model to the clients outside of the cohort, if this round does."""
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
        """Abort the transfers in progress."""
        for broadcast in self._under_way:
            broadcast.end()
        self._under_way = []

    def _not_used(self, client: int) -> None:
        broadcast = self._unused.pop(client, None)
        if broadcast is not None and broadcast.complete:
            broadcast.lose()


class Asking:
    """The cost of the losses that a selector asked for: each client's download, and its forward pass.

    Only the cost takes time: the losses do not depend on it, so the cohort is already chosen. A client that is in the
    cohort has the model for its job. A download is logged as a prefetch, because the client may not take part. A client
    whose memory cannot hold its training is not charged; it is refused if it is picked. A deadline counts from the end
    of the asking.

    Not modelled: the four bytes of the answer, the waiting of candidates for each other, and random slowdowns. A client
    that leaves before it has answered counts as if it had answered.

    Args:
        world: the world of the run.
        prefetches: the transfers that the next round will use, or that are dropped if the run ends, by client.
    """

    def __init__(self, world: World, prefetches: dict[int, Prefetch]) -> None:
        self._world = world
        self._prefetches = prefetches

    def wait(self, round: int, asked: Mapping[int, int], cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Until every asked client has evaluated the model.

        Args:
            round: the round that will begin.
            asked: the number of images of each asked client.
            cohort: the clients that will take part; the others' transfers were not useful.
        """
        world, blocks = self._world, self._world.setup.sizes.blocks
        answers = []
        for client, images in asked.items():
            if world.work.of(client, blocks).fits:
                parts = world.downlink(client, round, None).parts
                self._prefetches[client] = Prefetch(world, client, parts, round, awake=False, within_round=True)
                answers.append(world.env.process(self._answer(client, round, images)))
        yield simpy.AllOf(world.env, answers)
        for client in sorted(asked.keys() - set(cohort)):
            if client in self._prefetches:
                self._prefetches.pop(client).drop()

    def _answer(self, client: int, round: int, images: int) -> Generator[simpy.Event, object, None]:
        prefetch = self._prefetches[client]
        yield prefetch.delivery | prefetch.over
        if not prefetch.usable:
            return
        seconds = self._world.forward_seconds(client, round, images)
        yield self._world.env.timeout(seconds)
        self._world.evaluated(client, round, images, seconds)


class Synchronous(RoundByRound):
    """One round after another; a round closes when all or enough updates have arrived, or at its deadline.

    Args:
        world: the world of the run.
        book: turns arrived updates into models, rows, budgets and targets.
        spec: the protocol's options.
    """

    may_ask = True

    def __init__(self, world: World, book: RoundBook, spec: SynchronousSpec) -> None:
        super().__init__(world, book, spec)
        self._prefetches: dict[int, Prefetch] = {}
        self._asking = Asking(world, self._prefetches)
        self._broadcasting = Broadcasting(world)

    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        """See :class:`RoundByRound`."""
        world = self.world
        closed = world.env.event()
        self._begin(round, cohort, alphas, closed)
        yield closed if self.seconds is None else closed | world.alarm(self.seconds)
        for life in self.lives:
            life.drop("late")
        self._broadcasting.round_closes()

    def picked(self, round: int, cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Wait until the clients that a selector asked for losses have evaluated the model."""
        if self._decisions.asked:
            yield from self._asking.wait(round, self._decisions.asked, cohort)
            self._decisions.chose(round, cohort)

    def prefetch(self, round: int) -> None:
        """See :class:`RoundByRound`."""
        present = {life.client for life in self.lives}
        for client, parts in self._ahead.commit(round).items():
            self._prefetches[client] = Prefetch(self.world, client, parts, round, awake=client in present)

    def break_off(self) -> None:
        """See :class:`RoundByRound`."""
        for life in self.lives:
            life.drop("unfinished")
        for prefetch in self._prefetches.values():
            prefetch.drop()
        self._broadcasting.round_closes()

    def _begin(self, round: int, cohort: Sequence[int], alphas: dict[int, int], closed: simpy.Event) -> None:
        world = self.world
        present = set(cohort)
        arrivals = 0

        def left(life: Participation) -> None:
            nonlocal arrivals
            arrivals += life.phase == "arrived"
            present.discard(life.client)
            if (not present or arrivals >= world.setup.cohort) and not closed.triggered:
                closed.succeed()

        deadline = self.deadline()
        closes = math.inf if self.seconds is None else world.now + self.seconds
        self.lives = []
        for client in cohort:
            chosen = alphas.get(client)
            downlink = world.downlink(client, round, chosen)
            self._broadcasting.begins(client, downlink.alpha)
            life = Participation(
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
            self.lives.append(life)
        for life in self.lives:
            if life.work.fits:
                world.env.process(life.live())
            else:
                life.refuse()
        self._broadcasting.begin(round, cohort)
