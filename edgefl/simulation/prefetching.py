"""Transfers before the round, or the dispatch, that needs them; broadcasts to clients outside the cohort."""

from collections.abc import Collection, Generator, Mapping
from typing import Literal

import simpy

from edgefl.methods.parts.payload import Downlink, Part
from edgefl.network.fairness import Outlook
from edgefl.network.topology import Node
from edgefl.simulation.traffic import Delivery
from edgefl.simulation.world import World
from edgefl.training.faults import blaming


class Prefetch:
    """Parts received before the round that needs them; ``over`` triggers when it has begun, or they were dropped."""

    def __init__(
        self,
        world: World,
        client: int,
        parts: tuple[Part, ...],
        round: int,  # the round that will need them
        *,
        awake: bool,  # the client takes part in the present round too, so its idle watts are charged there
        dispatch: int | None = None,  # the number of the job that will need them; None: the client's next one
        within_round: bool = False,  # the round has begun, so that the transfer lengthens it
        item: Literal["prefetch", "broadcast"] = "prefetch",
        outlook: Outlook | None = None,
    ) -> None:
        self.parts, self.within_round = parts, within_round
        dispatch = world.clients[client].dispatched if dispatch is None else dispatch
        self._world, self._client, self._awake, self._place = world, client, awake, (round, client, dispatch)
        outlook = outlook or world.outlook(client, round, world.setup.sizes.blocks, up=False)
        self.delivery: Delivery = world.traffic.send(client, "down", parts, round, dispatch, item=item, outlook=outlook)
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
        seconds = (self._world.env.now if sent.ended is None else sent.ended) - sent.started
        if not self._awake:
            self._world.waited(*self._place, seconds, prefetching=True)
        return seconds

    def drop(self) -> None:
        """Cancel the prefetch, which is no longer needed, or was lost in a crash; no effect if it is over."""
        if self.over.triggered:
            return
        self.settle()
        self._world.traffic.cancel(self.delivery)
        self.lose()

    def lose(self) -> None:
        """It was in vain."""
        self._world.lost(*self._place, "prefetched_in_vain")


class CellPrefetch:
    """Parts, each once, that a cell downloads before a round and forwards; ``present``: the clients of this round."""

    def __init__(
        self, world: World, node: Node, early: Mapping[int, tuple[Part, ...]], round: int, present: Collection[int]
    ) -> None:
        self.parts = tuple(dict.fromkeys(part for parts in early.values() for part in parts))
        self.passed: dict[int, Prefetch] = {}
        self._world, self._early, self._round, self._present = world, early, round, present
        # The round may begin, and number its jobs, before the cell has the parts that it forwards.
        self._dispatches = {client: world.clients[client].dispatched for client in early}
        self.delivery: Delivery = world.traffic.relay("server", node, self.parts, round)
        self._life = self._pass_on()  # closed when the prefetch is dropped
        world.env.process(self._life)

    def _pass_on(self) -> Generator[simpy.Event, object, None]:
        yield self.delivery
        if self.delivery.failed:
            return
        for client, parts in self._early.items():
            if self._world.presence.is_down(client):
                continue
            awake = client in self._present
            self.passed[client] = Prefetch(
                self._world, client, parts, self._round, awake=awake, dispatch=self._dispatches[client]
            )

    def drop(self) -> None:
        self._life.close()
        self._world.traffic.cancel(self.delivery)
        for prefetch in self.passed.values():
            prefetch.drop()
        self.passed = {}


class Broadcast(Prefetch):
    """The transfer of a round's model, or its change, to a client outside the round, for the client's next job."""

    def __init__(self, world: World, client: int, parts: tuple[Part, ...], round: int) -> None:
        outlook = None if world.setup.bandwidth is None else Outlook()
        super().__init__(world, client, parts, round, awake=False, item="broadcast", outlook=outlook)
        self.complete = False
        if self.delivery.callbacks is not None:
            self.delivery.callbacks.append(lambda _: self.drop())

    def drop(self) -> None:
        """The transfer is complete or has failed; one in progress is aborted. No effect if that was noticed before."""
        if self.over.triggered:
            return
        self.complete = self.delivery.ended is not None and not self.delivery.failed
        self._world.traffic.cancel(self.delivery)
        self.settle()
        if self.complete:
            self._world.received(self._client, self._place[0])
        else:
            self.lose()


class Broadcasting:
    """The broadcasts of a run: if a round's payload says so, its downlink for all available clients with memory.

    The round does not wait for them, and aborts those in progress when it closes. A client's next job that receives
    only the last blocks continues from its newest broadcast, if no other job was computed since; one that receives a
    mean delta, from the model that its broadcasts have led to. They were in vain if the client is then sent everything.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._unused: dict[int, Broadcast] = {}

    def begin(self, round: int, cohort: Collection[int]) -> None:
        world, setup = self._world, self._world.setup
        with blaming(setup.label, round, "payload"):
            if not setup.method.payload.broadcasts(round):
                return
        blocks, available = setup.sizes.blocks, world.presence.available()
        for client in sorted(set(available.nonzero()[0].tolist()) - set(cohort)):
            if world.work.of(client, blocks).fits:
                downlink = world.downlink(client, round, None)
                self.begins(client, round, downlink)
                self._unused[client] = Broadcast(world, client, downlink.parts, round)

    def begins(self, client: int, round: int, downlink: Downlink) -> None:
        """The client takes part, or another broadcast to it begins, and it is sent this."""
        broadcast, world = self._unused.pop(client, None), self._world
        if broadcast is None or not broadcast.complete or downlink.alpha < world.setup.sizes.blocks:
            return
        if downlink.parts == world.downlink(client, round, None, anew=True).parts:
            broadcast.lose()

    def round_closes(self) -> None:
        for broadcast in self._unused.values():
            broadcast.drop()
