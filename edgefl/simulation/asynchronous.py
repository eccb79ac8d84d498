"""Asynchronous aggregation: clients come and go, and the server aggregates whenever enough updates are there."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
import simpy

from edgefl.learning.job import Mixing
from edgefl.simulation.decisions import Decisions
from edgefl.simulation.participation import Participation
from edgefl.simulation.protocol_specs import AsynchronousSpec
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


class Asynchronous:
    """FedBuff (Nguyen et al. 2022, Alg. 1), and with a buffer of one FedAsync (Xie et al. 2019, Alg. 1).

    ``concurrency`` clients are under way at any time. Whenever one returns, another is sent the latest model. As soon
    as ``buffer`` updates are there they become the next model, each counting by its staleness τ, the aggregations since
    the model that it was sent. Everything that happens at one instant comes before the dispatches of that instant, so
    clients that return together are replaced together, by one pick.

    A round is what lies between two aggregations. ``training.rounds`` counts them.

    Args:
        world: where it happens.
        book: turns arrived updates into models, rows, budgets and targets.
        spec: the protocol's options.
    """

    def __init__(self, world: World, book: RoundBook, spec: AsynchronousSpec) -> None:
        self.world = world
        self.book = book
        self._spec = spec
        self._decisions = Decisions(world)
        self._picks = 0
        self._free = np.ones(world.setup.clients, dtype=bool)
        self._under_way: dict[int, Participation] = {}
        self._begun: list[Participation] = []
        self._buffer: list[Participation] = []
        self._change = world.env.event()

    def run(self) -> Generator[simpy.Event, object, None]:
        """Dispatch, wait, aggregate, again and again."""
        world, setup = self.world, self.world.setup
        gathered = self._spec.gathered(setup.cohort)
        world.round_begins(0, ())
        while True:
            self._dispatch()
            if not self._under_way:
                if not self._free.any() or not (yield from self._decisions.arrival()):
                    world.stop("stalled")
                    return
                continue
            self._change = world.env.event()
            yield self._wake()
            yield world.alarm(0.0)
            while len(self._buffer) >= gathered:
                self._aggregate(gathered)
                if world.stopped.triggered:
                    return
                if self.book.rounds_done >= setup.rounds:
                    world.stop("rounds")
                    return
                world.round_begins(self.book.rounds_done, sorted(self._under_way))

    def _wake(self) -> simpy.Event:
        """Something is to be done: a client has left, or one comes where too few are under way."""
        seconds = self.world.presence.next_arrival()
        full = len(self._under_way) >= self._spec.under_way(self.world.setup.cohort)
        if full or math.isinf(seconds):
            return self._change
        return self._change | self.world.env.timeout(seconds)

    def break_off(self) -> None:
        """The run ends: whatever is under way breaks off."""
        for life in list(self._under_way.values()):
            life.drop("unfinished")

    def _dispatch(self) -> None:
        """Send the latest model to as many free clients as may begin; who has not the memory is not asked again."""
        world, version = self.world, self.book.rounds_done
        while True:
            wanted = self._spec.under_way(world.setup.cohort) - len(self._under_way)
            available = self._decisions.everyone[self._free]
            if wanted <= 0 or not len(available):
                return
            picked = self._decisions.pick(self._picks, available, min(wanted, len(available)), version)
            self._picks += 1
            if not picked:
                return
            alphas = self._decisions.blocks(version, picked)
            for client in picked:
                self._begin(client, version, alphas.get(client))

    def _begin(self, client: int, version: int, chosen: int | None) -> None:
        world = self.world
        life = Participation(
            world,
            client,
            version,
            world.downlink(client, version, chosen),
            chosen=chosen,
            prefetch=None,
            on_downloaded=lambda _: None,
            on_left=self._left,
        )
        self._begun.append(life)
        self._free[client] = False
        if life.work.fits:
            self._under_way[client] = life
            world.env.process(life.live(submit_first=True))
        else:
            life.refuse()

    def _left(self, life: Participation) -> None:
        if self._under_way.pop(life.client, None) is None:
            return
        self._free[life.client] = True
        if life.phase == "arrived":
            self._buffer.append(life)
        if not self._change.triggered:
            self._change.succeed()

    def _aggregate(self, gathered: int) -> None:
        """The first ``gathered`` updates that arrived become the next model."""
        version = self.book.rounds_done
        arrived = sorted(self._buffer[:gathered], key=lambda life: (life.client, life.job.id.dispatch))
        del self._buffer[:gathered]
        factors = {life.job.id: self._spec.factor(version - life.round) for life in arrived}
        begun, self._begun = self._begun, []
        self.book.close(version, begun, arrived, Mixing(factors, self._spec.mix))
