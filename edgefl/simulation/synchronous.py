"""Synchronous rounds: pick a cohort, wait for its updates, close the round, aggregate."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar

import simpy

from edgefl.methods.parts.payload import Downlink, Part
from edgefl.record.kinds import Lost
from edgefl.simulation.decisions import Decisions
from edgefl.simulation.participation import Participation
from edgefl.simulation.prefetching import Broadcasting, Prefetch
from edgefl.simulation.protocol_specs import READS, Deadlines, RoundsSpec, SynchronousSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.work import Plan
from edgefl.simulation.world import World


class RoundByRound(ABC):
    """One round after another; a subclass defines how the cohort's clients communicate with the server.

    ``seconds`` count from the start of the present round to its deadline; None for none. ``plans`` is the local
    work that the server chose for each client of the present round, if it did.
    """

    may_ask: ClassVar[bool] = False

    def __init__(self, world: World, book: RoundBook, spec: RoundsSpec) -> None:
        self.world = world
        self.book = book
        self.spec = spec
        self.participants: list[Participation] = []
        self._decisions = Decisions(world, may_ask=self.may_ask, shortens=spec.late == "partial")
        self._size = min(spec.picked(world.setup.cohort), world.setup.clients)
        self._committed: list[int] = []
        self._downloading: set[int] = set()
        self._deadlines = Deadlines(spec.deadline)
        self.seconds: float | None = None
        self.plans: dict[int, Plan] = {}

    def run(self) -> Generator[simpy.Event, object, None]:
        world, setup = self.world, self.world.setup
        for round in range(setup.rounds):
            while not (cohort := self._cohort(round)):
                if not (yield from self._decisions.arrival(round)):
                    world.accounts.stop("stalled")
                    return
            world.round_begins(round, cohort)
            yield from self.picked(round, cohort)
            self.book.pick = self._decisions.last_pick
            alphas = self._decisions.blocks(round, cohort)
            self._downloading = set(cohort)
            began, self.seconds = world.env.now, self._next_deadline(round)
            self._plan(round, cohort)
            yield from self.hold(round, cohort, alphas)
            ended = [each.arrived_at if math.isnan(each.cut_off_at) else each.cut_off_at for each in self.participants]
            self._deadlines.round_closed([moment - began for moment in ended if not math.isnan(moment)])
            arrived = [each for each in self.participants if each.phase == "arrived"]
            self.book.close(round, self.participants, sorted(arrived, key=lambda each: each.client))
            if world.stopped.triggered:
                return
        world.accounts.stop("rounds")

    def _cohort(self, round: int) -> list[int]:
        committed, self._committed = self._committed, []
        return committed or self._decisions.pick(round, self._decisions.everyone, self._size, round)

    def commit(self, round: int) -> dict[int, tuple[Part, ...]]:
        """Pick the clients of the next round; return the parts that each can receive already, if any.

        Selection is final before the present round's aggregation.
        """
        world, setup = self.world, self.world.setup
        if not setup.method.overlap or round >= setup.rounds:
            return {}
        self._committed = self._cohort(round)
        early = {}
        for client in self._committed:
            parts = tuple(part for part in world.downlink(client, round, None).parts if part.early)
            if parts and world.work.of(client, setup.sizes.blocks).fits:
                early[client] = parts
        return early

    @abstractmethod
    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        """Run the cohort's participations, in ``self.participants``, until the round (from 0) closes.

        ``alphas`` is each client's number of blocks from the scheduler, if there is one.
        """

    def picked(self, round: int, cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Wait between the pick of a cohort and the beginning of its round; by default not at all."""
        yield from ()

    @abstractmethod
    def prefetch(self, round: int) -> None:
        """Pick the clients of the next round, and send them the parts that are ready early."""

    @abstractmethod
    def break_off(self) -> None:
        """The run ends: abort everything in progress."""

    def participation(
        self, client: int, round: int, downlink: Downlink, chosen: int | None, on_left: Callable[[Participation], None]
    ) -> Participation:
        """A new member of ``participants``; ``chosen`` is its number of blocks from the scheduler, if there is one."""
        closes = math.inf if self.seconds is None else self.world.env.now + self.seconds
        reduces = self.spec.late == "partial" and self.seconds is not None
        participant = Participation(
            self.world,
            client,
            round,
            downlink,
            chosen=chosen,
            on_downloaded=self.downloaded,
            on_left=on_left,
            closes=closes,
            reserve=self.spec.reserve if reduces else None,
            plan=self.plans.get(client),
        )
        self.participants.append(participant)
        return participant

    def _plan(self, round: int, cohort: Sequence[int]) -> None:
        finish = self.world.setup.method.local.common_finish
        if finish is None:
            return
        seconds, self.plans = self._decisions.local_work(round, cohort, finish)
        if finish.drop_late and math.isfinite(seconds):
            self.seconds = seconds if self.seconds is None else min(self.seconds, seconds)

    def _next_deadline(self, round: int) -> float | None:
        """Seconds until the deadline of a round that begins now."""
        seconds = self._deadlines.seconds()
        if seconds is not None and self._deadlines.adaptive:
            self.world.decided(round, "deadline", READS, seconds=seconds)
        return seconds

    def downloaded(self, participant: Participation) -> None:
        """A client holds everything, or never will; once this holds for all, their links are free for the next."""
        if self._downloading:
            self._downloading.discard(participant.client)
            if not self._downloading:
                self.prefetch(participant.round + 1)


class Synchronous(RoundByRound):
    """One round after another; a round closes when all or enough updates have arrived, or at its deadline."""

    may_ask = True

    def __init__(self, world: World, book: RoundBook, spec: SynchronousSpec) -> None:
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
            self.world.has_base.add(client)
            seconds = self.world.forward_seconds(client, round, images)
            yield self.world.env.timeout(seconds)
            self.world.evaluated(client, round, images, seconds)

    def prefetch(self, round: int) -> None:
        present = {each.client for each in self.participants}
        for client, parts in self.commit(round).items():
            self._prefetches[client] = Prefetch(self.world, client, parts, round, awake=client in present)

    def break_off(self) -> None:
        self._end("unfinished")
        for prefetch in self._prefetches.values():
            prefetch.drop()

    def _end(self, fate: Lost) -> None:
        """Drop who has not returned, and abort the broadcasts in progress."""
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
            elif arrivals >= world.setup.cohort:
                # Updates that arrive at the same instant count, too.
                world.env.alarm(0.0).callbacks.append(close)

        self.participants = []
        for client in cohort:
            downlink = world.downlink(client, round, alphas.get(client))
            if self._broadcasting is not None:
                self._broadcasting.begins(client, downlink.alpha)
            participant = self.participation(client, round, downlink, alphas.get(client), left)
            participant.prefetch = self._prefetches.pop(client, None)
        for participant in self.participants:
            if participant.work.fits:
                world.env.process(participant.live())
            else:
                participant.refuse()
        if self._broadcasting is not None:
            self._broadcasting.begin(round, cohort)
