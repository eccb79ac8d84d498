"""Hierarchical rounds: the server sends each cell the model once, and each cell returns its clients' mean."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal

import simpy
from pydantic import Field

from edgefl.methods.fits import Need
from edgefl.methods.parts.payload import Part
from edgefl.methods.parts.server import Weighting
from edgefl.network.topology import Node
from edgefl.record.kinds import Lost
from edgefl.simulation.participation import Participation
from edgefl.simulation.prefetching import CellPrefetch
from edgefl.simulation.protocols.base import PROTOCOLS, Course, RoundsSpec
from edgefl.simulation.protocols.round_by_round import RoundByRound
from edgefl.simulation.rounds import RoundBook
from edgefl.simulation.traffic import Delivery
from edgefl.simulation.world import World


@PROTOCOLS.register("hierarchical")
class HierarchicalSpec(RoundsSpec):
    """Synchronous rounds in which each cell averages its clients' updates and sends the server one.

    The mean of the cells' means, each with its clients' weights, is the mean over all clients. Each cell closes
    separately: when all its clients have returned or dropped out, at the deadline, or when its share of an
    over-selected cohort has returned. The round ends when every cell's mean has reached the server.
    """

    needs = frozenset({"cells"})
    averages_in_cells = True

    kind: Literal["hierarchical"] = Field(description="hierarchical: cells average before the server does")

    def takes(self, weighting: Weighting = "uniform") -> dict[Need, str]:
        other = "expected protocol.kind: synchronous or asynchronous"
        takes = super().takes(weighting)
        takes["each update"] = f"in hierarchical rounds the cells send their clients' mean; {other}"
        takes["rounds"] = "in hierarchical rounds each cell has its own; expected protocol.kind: synchronous"
        takes["server's links"] = f"in hierarchical rounds cells send to clients on their own; {other}"
        if weighting == "samples":
            takes["plain sum"] = "cells send a mean weighted by samples; expected weighting: uniform"
        return takes

    def course(self, world: World, book: RoundBook) -> Course:
        return Hierarchical(world, book, self)


@dataclass(eq=False)
class Cell:
    """An edge aggregator's part in one round: download (or ``prefetch``), forward, collect, upload."""

    world: World
    node: Node
    round: int
    spec: RoundsSpec
    prefetch: CellPrefetch | None
    deadline: float | None

    def __post_init__(self) -> None:
        self.participants: list[Participation] = []
        self._present: set[int] = set()
        self._arrivals = 0
        self._closed = self.world.env.event()
        self._deliveries: list[Delivery] = []

    def left(self, participant: Participation) -> None:
        if participant.refused:
            return
        self._present.discard(participant.client)
        self._arrivals += participant.phase == "arrived"
        if not self._present:
            self._time_is_up()
        elif self._arrivals >= self.spec.enough(len(self.participants)):
            # Updates that arrive at the same instant count, too.
            self.world.env.alarm(0.0).callbacks.append(self._time_is_up)

    def live(self) -> Generator[simpy.Event, object, None]:
        world, env = self.world, self.world.env
        self._present = {each.client for each in self.participants}
        if self.deadline is not None:
            world.env.alarm(self.deadline).callbacks.append(self._time_is_up)
        began = env.now
        hidden = self._fetch()
        for delivery in self._deliveries:
            if not delivery.processed:
                yield delivery | self._closed
        fetching = env.now - began
        if not self._closed.triggered:
            world.cells_with_base.add(self.node)
            for participant in self.participants:
                participant.hidden_seconds = hidden
                if self.prefetch is not None:
                    participant.prefetch = self.prefetch.passed.pop(participant.client, None)
                participant.begin()
            yield self._closed
        self.close("late")
        for participant in self.participants:
            participant.announce()
        arrived = [each for each in self.participants if each.phase == "arrived"]
        if arrived:
            began = env.now
            uplink = world.setup.cell_uplink
            self._deliveries = [world.traffic.relay(self.node, "server", uplink, self.round)]
            yield self._deliveries[0]
            if self._deliveries[0].failed:
                for participant in arrived:
                    participant.strand()
                return
        for participant in arrived:
            participant.reached_at = world.env.now
            participant.relay_seconds = fetching + env.now - began

    def _time_is_up(self, _: object = None) -> None:
        if not self._closed.triggered:
            self._closed.succeed()

    def _fetch(self) -> float:
        """Request the parts that the cell does not have; return the seconds of its prefetching before the round."""
        parts = self.world.lacking(self.node, (each.downlink for each in self.participants))
        self._deliveries, hidden = [], 0.0
        if self.prefetch is not None and not self.prefetch.delivery.failed:
            early = self.prefetch.delivery
            self._deliveries.append(early)
            hidden = (self.world.env.now if early.ended is None else early.ended) - early.started
            parts = [part for part in parts if part not in self.prefetch.parts]
        if parts or not self._deliveries:
            self._deliveries.append(self.world.traffic.relay("server", self.node, parts, self.round))
        for delivery in self._deliveries:
            if delivery.callbacks is not None:
                delivery.callbacks.append(self._fetched)
        return hidden

    def _fetched(self, event: simpy.Event) -> None:
        """A transfer to the cell has ended; if it has failed, no client can begin."""
        assert isinstance(event, Delivery)
        if event.failed:
            if self.prefetch is not None:
                self.prefetch.drop()  # before the jobs that it is for
            for participant in self.participants:
                participant.quit("backhaul")

    def close(self, fate: Lost) -> None:
        for delivery in self._deliveries:
            self.world.traffic.cancel(delivery)
        if self.prefetch is not None:
            self.prefetch.drop()
        for participant in self.participants:
            participant.drop(fate)


class Hierarchical(RoundByRound):
    """Hierarchical rounds; a round closes when every cell with clients in the cohort has returned their mean."""

    def __init__(self, world: World, book: RoundBook, spec: HierarchicalSpec) -> None:
        super().__init__(world, book, spec)
        self._cells: list[Cell] = []
        self._prefetches: dict[Node, CellPrefetch] = {}

    def hold(self, round: int, cohort: Sequence[int], alphas: dict[int, int]) -> Generator[simpy.Event, object, None]:
        world = self.world
        cells: dict[Node, Cell] = {}
        self.participants = []
        for client in cohort:
            node = world.traffic.gate(client)
            cell = cells.get(node)
            if cell is None:
                prefetch = self._prefetches.pop(node, None)
                cell = cells[node] = Cell(world, node, round, self.spec, prefetch, deadline=self.seconds)
            chosen = alphas.get(client)
            downlink = world.downlink(client, round, chosen)
            participant = self.participation(client, round, downlink, chosen, cell.left)
            if participant.work.fits:
                cell.participants.append(participant)
        self._cells = [cell for cell in cells.values() if cell.participants]
        for participant in self.participants:
            if not participant.work.fits:
                participant.refuse()
        yield world.env.all_of([world.env.process(cell.live()) for cell in self._cells])

    def prefetch(self, round: int) -> None:
        present = {each.client for each in self.participants}
        cells: dict[Node, dict[int, tuple[Part, ...]]] = {}
        for client, parts in self.commit(round).items():
            cells.setdefault(self.world.traffic.gate(client), {})[client] = parts
        for node, early in cells.items():
            self._prefetches[node] = CellPrefetch(self.world, node, early, round, present)

    def break_off(self) -> None:
        super().break_off()
        for cell in self._cells:
            cell.close("unfinished")
        for prefetch in self._prefetches.values():
            prefetch.drop()
