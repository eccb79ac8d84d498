"""One round after another: what synchronous and hierarchical rounds have in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar

import simpy

from edgefl.methods.parts.payload import Downlink, Part
from edgefl.randomness import generator
from edgefl.simulation.decisions import Decisions
from edgefl.simulation.evaluating import Evaluating
from edgefl.simulation.participation import Participation
from edgefl.simulation.protocols.base import RoundsSpec
from edgefl.simulation.protocols.deadlines import READS, Deadlines
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.work import Plan
from edgefl.simulation.world import World


class RoundByRound(ABC):
    """One round after another; a subclass defines how the cohort's clients communicate with the server.

    ``seconds`` is the round's deadline after its start; ``plans`` is the local work that the server chose, if it did.
    """

    may_ask: ClassVar[bool] = False
    member: ClassVar[type[Participation]] = Participation

    def __init__(self, world: World, book: RoundBook, spec: RoundsSpec) -> None:
        self.world, self.book, self.spec = world, book, spec
        self.participants: list[Participation] = []
        self._decisions = Decisions(world, may_ask=self.may_ask, shortens=spec.late == "partial")
        self._size = min(spec.picked(world.setup.cohort), world.setup.clients)
        self._committed: list[int] = []
        self._downloading: set[int] = set()
        self._deadlines = Deadlines(spec.deadline)
        self._evaluating = Evaluating(world)
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
            began, self.seconds = world.env.now, self._deadlines.seconds()
            if self.seconds is not None and self._deadlines.adaptive:
                world.decided(round, "deadline", READS, seconds=self.seconds)
            self._plan(round, cohort)
            yield from self.hold(round, cohort, alphas)
            ended = [each.arrived_at if math.isnan(each.cut_off_at) else each.cut_off_at for each in self.participants]
            self._deadlines.round_closed([moment - began for moment in ended if not math.isnan(moment)])
            arrived = [each for each in self.participants if each.phase == "arrived"]
            closed = world.env.now
            cells = {world.traffic.gate(each.client) for each in arrived}
            yield from self._evaluating.run(round, len(cells if self.spec.averages_in_cells else arrived))
            self.book.close(round, self.participants, sorted(arrived, key=lambda each: each.client), closed=closed)
            if world.stopped.triggered:
                return
        world.accounts.stop("rounds")

    def _cohort(self, round: int) -> list[int]:
        committed, self._committed = self._committed, []
        everyone, setup = self._decisions.everyone, self.world.setup
        if not setup.poisson or committed:
            return committed or self._decisions.pick(round, everyone, self._size, round)
        draws = generator(setup.seed, "poisson", round)
        while not (drawn := draws.random(setup.clients) < setup.cohort / setup.clients).any():
            pass  # an empty draw is repeated
        return self._decisions.pick(round, everyone[drawn], setup.clients, round)

    def commit(self, round: int) -> dict[int, tuple[Part, ...]]:
        """Pick the next round's clients, finally; return the parts that each can receive already."""
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
        """Run the cohort, in ``self.participants``, with its number of blocks, until the round (from 0) closes."""

    def picked(self, round: int, cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Wait between the pick of a cohort and the beginning of its round; by default not at all."""
        yield from ()

    @abstractmethod
    def prefetch(self, round: int) -> None:
        """Pick the clients of the next round, and send them the parts that are ready early."""

    def break_off(self) -> None:
        """The run ends: abort everything in progress."""
        self._evaluating.break_off()

    def participation(
        self, client: int, round: int, downlink: Downlink, chosen: int | None, on_left: Callable[[Participation], None]
    ) -> Participation:
        """A new member of ``participants``; ``chosen`` is its number of blocks from the scheduler, if there is one."""
        closes = math.inf if self.seconds is None else self.world.env.now + self.seconds
        reduces = self.spec.late == "partial" and self.seconds is not None
        plan = self.plans.get(client, Plan())
        participant = self.member(
            self.world,
            client,
            round,
            downlink,
            self.world.work.of(client, plan.blocks or downlink.alpha, plan.steps),
            chosen=chosen,
            on_downloaded=self.downloaded,
            on_left=on_left,
            closes=closes,
            reserve=self.spec.reserve if reduces else None,
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

    def downloaded(self, participant: Participation) -> None:
        """A client holds everything, or never will; once this holds for all, their links are free for the next."""
        if self._downloading:
            self._downloading.discard(participant.client)
            if not self._downloading:
                self.prefetch(participant.round + 1)
