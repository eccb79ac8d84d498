"""What protocols with rounds have in common: pick a cohort, let it live, aggregate, again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

import simpy

from edgefl.simulation.decisions import Decisions
from edgefl.simulation.participation import Deadline, Participation
from edgefl.simulation.prefetching import Ahead
from edgefl.simulation.protocol_specs import RoundsSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


class RoundByRound(ABC):
    """One round after another; a subclass says how the cohort's clients deal with the server.

    Args:
        world: where it happens.
        book: turns arrived updates into models, rows, budgets and targets.
        spec: when a round closes.
    """

    def __init__(self, world: World, book: RoundBook, spec: RoundsSpec) -> None:
        self.world = world
        self.book = book
        self.spec = spec
        self.lives: list[Participation] = []
        self._decisions = Decisions(world)
        self._ahead = Ahead(world, self._decisions, min(spec.picked(world.setup.cohort), world.setup.clients))
        self._downloading: set[int] = set()

    def run(self) -> Generator[simpy.Event, object, None]:
        """All rounds, one after another."""
        world, setup = self.world, self.world.setup
        for round in range(setup.rounds):
            cohort = self._ahead.cohort(round)
            world.round_begins(round, cohort)
            while not cohort:
                if not (yield from self._decisions.arrival(round)):
                    world.stop("stalled")
                    return
                cohort = self._ahead.cohort(round)
            alphas = self._decisions.blocks(round, cohort)
            self._downloading = set(cohort)
            yield from self.hold(round, cohort, alphas)
            arrived = [life for life in self.lives if life.phase == "arrived"]
            self.book.close(round, self.lives, sorted(arrived, key=lambda life: life.client))
            if world.stopped.triggered:
                return
        world.stop("rounds")

    @abstractmethod
    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        """Let the cohort live in ``self.lives`` until the round closes.

        Args:
            round: from 0.
            cohort: who takes part.
            alphas: the number of blocks that a scheduler chose for each client, where one did.
        """

    @abstractmethod
    def prefetch(self, round: int) -> None:
        """Pick the clients of the round to come, and send them what is ready early."""

    @abstractmethod
    def break_off(self) -> None:
        """The run ends: whatever is under way breaks off."""

    def deadline(self) -> Deadline | None:
        """Until when updates must have arrived, for clients of a round that begins now and shorten their work."""
        if self.spec.late != "partial" or self.spec.deadline is None:
            return None
        return Deadline(self.world.now + self.spec.deadline, self.spec.reserve)

    def downloaded(self, life: Participation) -> None:
        """A client holds everything, or never will; once this holds for all, their links are free for the next."""
        if self._downloading:
            self._downloading.discard(life.client)
            if not self._downloading:
                self.prefetch(life.round + 1)
