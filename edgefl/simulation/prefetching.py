"""Transfers before the round, or the dispatch, that needs them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping

import simpy

from edgefl.methods.parts.payload import Downlink, Part
from edgefl.network.topology import Node
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.world import World


class Prefetch:
    """Parts that a client receives before the round that needs them.

    Args:
        round: the round that will need them.
        awake: the client takes part in the present round too, so its idle watts are charged there.
        dispatch: the number of the job that will need them; ``None``: the client's next one.
        within_round: the round has begun, so that the transfer lengthens it.

    Attributes:
        over: triggers when it is over: its participation has begun, or it was dropped.
    """

    def __init__(
        self,
        world: World,
        client: int,
        parts: tuple[Part, ...],
        round: int,
        *,
        awake: bool,
        dispatch: int | None = None,
        within_round: bool = False,
    ) -> None:
        self.parts = parts
        self.within_round = within_round
        self._dispatch = world.dispatches(client) if dispatch is None else dispatch
        outlook = world.outlook(client, round, world.setup.sizes.blocks, up=False)
        self.delivery: Delivery = world.traffic.send(
            client, "down", parts, round, self._dispatch, item="prefetch", outlook=outlook
        )
        self._world = world
        self._client = client
        self._round = round
        self._awake = awake
        self.over: simpy.Event = world.env.event()
        world.presence.prefetches(client, self.drop)

    def serves(self, downlink: Downlink) -> bool:
        return self.usable and any(part in downlink.parts for part in self.parts)

    @property
    def usable(self) -> bool:
        return not self.over.triggered and not self.delivery.failed

    def settle(self) -> float:
        """Its participation begins: charge the client's waiting up to now; return the transfer's seconds so far."""
        self.over.succeed()
        self._world.presence.prefetched(self._client, self.drop)
        sent = self.delivery
        seconds = (self._world.now if sent.ended is None else sent.ended) - sent.started
        if not self._awake:
            self._world.waited(self._client, self._round, self._dispatch, seconds, prefetching=True)
        return seconds

    def drop(self) -> None:
        """Cancel the prefetch, which is no longer needed, or was lost in a crash; no effect if it is over."""
        if self.over.triggered:
            return
        self.settle()
        self._world.traffic.cancel(self.delivery)
        self._world.lost(self._client, self._round, self._dispatch, "prefetched_in_vain")


class CellPrefetch:
    """Parts that a cell downloads before a round, and forwards to its clients as soon as it has them.

    A part that several clients need is sent once. ``present`` are the clients of the present round.
    """

    def __init__(
        self, world: World, node: Node, early: Mapping[int, tuple[Part, ...]], round: int, present: Collection[int]
    ) -> None:
        self.parts = tuple(dict.fromkeys(part for parts in early.values() for part in parts))
        self.passed: dict[int, Prefetch] = {}
        self._world = world
        self._early = early
        self._round = round
        self._present = present
        self._dropped = False
        # The round may begin, and number its jobs, before the cell has the parts that it forwards.
        self._dispatches = {client: world.dispatches(client) for client in early}
        self.delivery: Delivery = world.traffic.relay("server", node, self.parts, round)
        world.env.process(self._pass_on())

    def _pass_on(self) -> Generator[simpy.Event, object, None]:
        yield self.delivery
        if self._dropped or self.delivery.failed:
            return
        for client, parts in self._early.items():
            if self._world.presence.is_down(client):
                continue
            awake = client in self._present
            self.passed[client] = Prefetch(
                self._world, client, parts, self._round, awake=awake, dispatch=self._dispatches[client]
            )

    def take(self, client: int) -> Prefetch | None:
        """Remove and return a client's prefetch, which the client then owns."""
        return self.passed.pop(client, None)

    def drop(self) -> None:
        self._dropped = True
        self._world.traffic.cancel(self.delivery)
        for prefetch in self.passed.values():
            prefetch.drop()
        self.passed = {}
