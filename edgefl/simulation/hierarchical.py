"""Hierarchical rounds: the server sends each cell the model once, and each cell returns its clients' mean."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import simpy

from edgefl.learning.payload import Part
from edgefl.network.flow import Flow, Node
from edgefl.simulation.decisions import Decisions
from edgefl.simulation.participation import Participation
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.world import World


class Cell:
    """An edge aggregator's part in one round: fetch, pass on, gather, return.

    Args:
        world: where it is.
        node: its node in the topology.
        round: the round.
    """

    def __init__(self, world: World, node: Node, round: int) -> None:
        self.world = world
        self.node = node
        self.round = round
        self.lives: list[Participation] = []
        self._present = 0
        self._empty = world.env.event()
        self._flow: Flow | None = None

    def left(self, life: Participation) -> None:
        """One of its clients has returned, or gives up."""
        self._present -= 1
        if not self._present and not self._empty.triggered:
            self._empty.succeed()

    def live(self) -> Generator[simpy.Event, object, None]:
        """The cell's round, as SimPy tells it."""
        world, env = self.world, self.world.env
        self._present = len(self.lives)
        began = env.now
        # A part that several clients need comes once.
        parts = dict.fromkeys(part for life in self.lives for part in life.downlink.parts)
        yield from self._relay("down", tuple(parts))
        fetching = env.now - began
        for life in self.lives:
            env.process(life.live())
        yield self._empty
        arrived = [life for life in self.lives if life.phase == "arrived"]
        if arrived:
            began = env.now
            yield from self._relay("up", world.setup.method.payload.uplink(world.setup.sizes))
        for life in arrived:
            life.reached_at = world.now
            life.relay_seconds = fetching + env.now - began

    def break_off(self) -> None:
        """The run ends: whatever is under way breaks off."""
        if self._flow is not None:
            self.world.network.cancel(self._flow)
        for life in self.lives:
            life.drop("unfinished")

    def _relay(self, direction: str, parts: Sequence[Part]) -> Generator[simpy.Event, object, None]:
        ends: tuple[Node, Node] = ("server", self.node)
        source, target = ends if direction == "down" else ends[::-1]
        self._flow = self.world.relay(source, target, parts, self.round)
        yield self._flow
        self._flow = None


class Hierarchical:
    """Round after round; a round closes when every cell with clients in the cohort has returned their mean.

    Args:
        world: where it happens.
        book: turns arrived updates into models, rows, budgets and targets.
    """

    def __init__(self, world: World, book: RoundBook) -> None:
        self.world = world
        self.book = book
        self._decisions = Decisions(world)
        self._cells: list[Cell] = []

    def run(self) -> Generator[simpy.Event, object, None]:
        """All rounds, one after another."""
        world, setup = self.world, self.world.setup
        for round in range(setup.rounds):
            cohort = self._pick(round)
            world.round_begins(round, cohort)
            while not cohort:
                if not (yield from self._decisions.arrival()):
                    world.stop("stalled")
                    return
                cohort = self._pick(round)
            lives = self._begin(round, cohort)
            yield world.env.all_of([world.env.process(cell.live()) for cell in self._cells])
            arrived = [life for life in lives if life.phase == "arrived"]
            self.book.close(round, lives, sorted(arrived, key=lambda life: life.client))
            if world.stopped.triggered:
                return
        world.stop("rounds")

    def _pick(self, round: int) -> list[int]:
        setup = self.world.setup
        return self._decisions.pick(round, self._decisions.everyone, min(setup.cohort, setup.clients), round)

    def break_off(self) -> None:
        """The run ends: whatever is under way breaks off."""
        for cell in self._cells:
            cell.break_off()

    def _begin(self, round: int, cohort: Sequence[int]) -> list[Participation]:
        world = self.world
        alphas = self._decisions.blocks(round, cohort)
        cells: dict[Node, Cell] = {}
        lives = []
        for client in cohort:
            node = world.gate(client)
            cell = cells.get(node) or Cell(world, node, round)
            chosen = alphas.get(client)
            life = Participation(
                world,
                client,
                round,
                world.downlink(client, round, chosen),
                chosen=chosen,
                prefetch=None,
                on_downloaded=lambda _: None,
                on_left=cell.left,
            )
            lives.append(life)
            if life.work.fits:
                cells[node] = cell
                cell.lives.append(life)
            else:
                life.refuse()
        self._cells = list(cells.values())
        return lives
