"""Synchronous rounds: pick a cohort, wait for its updates, close the round, aggregate."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import simpy

from edgefl.simulation.asking import Asking
from edgefl.simulation.broadcasting import Broadcasting
from edgefl.simulation.participation import Participation
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.protocol_specs import SynchronousSpec
from edgefl.simulation.round_by_round import RoundByRound
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


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
