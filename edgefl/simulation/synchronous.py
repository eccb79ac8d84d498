"""Synchronous rounds: pick a cohort, let it live, close the round, aggregate."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import simpy

from edgefl.simulation.decisions import Decisions
from edgefl.simulation.participation import Deadline, Participation, Prefetch
from edgefl.simulation.protocol_specs import SynchronousSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


class Synchronous:
    """Round after round; a round closes when all have arrived, enough have arrived, or its deadline has come.

    Args:
        world: where it happens.
        book: turns arrived updates into models, rows, budgets and targets.
        spec: the protocol's options.
    """

    def __init__(self, world: World, book: RoundBook, spec: SynchronousSpec) -> None:
        self.world = world
        self.book = book
        self._prefetches: dict[int, Prefetch] = {}
        self._lives: list[Participation] = []
        self._committed: list[int] | None = None
        self._spec = spec
        self._decisions = Decisions(world)

    def run(self) -> Generator[simpy.Event, object, None]:
        """All rounds, one after another."""
        world, setup = self.world, self.world.setup
        for round in range(setup.rounds):
            cohort = self._committed or self._pick(round)
            self._committed = None
            world.round_begins(round, cohort)
            while not cohort:
                if not (yield from self._decisions.arrival()):
                    world.stop("stalled")
                    return
                cohort = self._pick(round)
            alphas = self._decisions.blocks(round, cohort)
            closed = world.env.event()
            self._begin(round, cohort, alphas, closed)
            deadline = self._spec.deadline
            yield closed if deadline is None else closed | world.alarm(deadline)
            arrived = [life for life in self._lives if life.phase == "arrived"]
            for life in self._lives:
                life.drop("late")
            self.book.close(round, self._lives, sorted(arrived, key=lambda life: life.client))
            if world.stopped.triggered:
                return
        world.stop("rounds")

    def break_off(self) -> None:
        """The run ends: whatever is under way breaks off."""
        for life in self._lives:
            life.drop("unfinished")
        for prefetch in self._prefetches.values():
            prefetch.drop()

    def _pick(self, round: int) -> list[int]:
        setup = self.world.setup
        size = min(self._spec.picked(setup.cohort), setup.clients)
        return self._decisions.pick(round, self._decisions.everyone, size, round)

    def _begin(self, round: int, cohort: Sequence[int], alphas: dict[int, int], closed: simpy.Event) -> None:
        world, setup = self.world, self.world.setup
        downloading = set(cohort)
        present = set(cohort)
        arrivals = 0

        def downloaded(life: Participation) -> None:
            downloading.discard(life.client)
            if not downloading:
                self._prefetch(round + 1)

        def left(life: Participation) -> None:
            nonlocal arrivals
            arrivals += life.phase == "arrived"
            present.discard(life.client)
            if (not present or arrivals >= setup.cohort) and not closed.triggered:
                closed.succeed()

        spec = self._spec
        deadline = None
        if spec.late == "partial" and spec.deadline is not None:
            deadline = Deadline(world.now + spec.deadline, spec.reserve)
        self._lives = []
        for client in cohort:
            chosen = alphas.get(client)
            life = Participation(
                world,
                client,
                round,
                world.downlink(client, round, chosen),
                chosen=chosen,
                prefetch=self._prefetches.pop(client, None),
                on_downloaded=downloaded,
                on_left=left,
                deadline=deadline,
            )
            self._lives.append(life)
        for life in self._lives:
            if life.work.fits:
                world.env.process(life.live())
            else:
                life.refuse()
                downloaded(life)

    def _prefetch(self, round: int) -> None:
        # Selection must be committed before this round's aggregation, so that parts which are ready early can be sent.
        world, setup = self.world, self.world.setup
        if not setup.method.overlap or round >= setup.rounds:
            return
        self._committed = self._pick(round)
        present = {life.client for life in self._lives}
        for client in self._committed:
            early = tuple(part for part in world.downlink(client, round, None).parts if part.early)
            if early and world.work.of(client, setup.sizes.blocks).fits:
                self._prefetches[client] = Prefetch(world, client, early, round, awake=client in present)
