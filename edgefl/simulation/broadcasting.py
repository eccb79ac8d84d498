"""The server also sends the model to clients that do not take part in the round, so that they keep newer blocks."""

from __future__ import annotations

from collections.abc import Collection

from edgefl.network.allotment import Outlook
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.world import World
from edgefl.training.faults import blaming


class Broadcast:
    """The transfer of a round's model to one client that does not take part in the round.

    Its bytes belong to the client's next job. The client is awake during the transfer.

    Args:
        world: the world of the run.
        client: the receiving client.
        round: the round, which is also the version of the model.

    Attributes:
        complete: whether the client has received the model.
    """

    def __init__(self, world: World, client: int, round: int) -> None:
        self._world = world
        self._client, self._round, self._dispatch = client, round, world.dispatches(client)
        self._over = False
        self.complete = False
        parts = world.downlink(client, round, None).parts
        outlook = None if world.setup.bandwidth is None else Outlook()
        self._delivery: Delivery = world.traffic.send(
            client, "down", parts, round, self._dispatch, item="broadcast", outlook=outlook
        )
        world.presence.prefetches(client, self)
        if self._delivery.callbacks is not None:
            self._delivery.callbacks.append(lambda _: self.end())

    def end(self) -> None:
        """The transfer is complete or has failed; one in progress is aborted. No effect if that was noticed before."""
        if self._over:
            return
        self._over, sent, world = True, self._delivery, self._world
        world.presence.prefetched(self._client, self)
        self.complete = sent.ended is not None and not sent.failed
        world.traffic.cancel(sent)
        seconds = (world.now if sent.ended is None else sent.ended) - sent.started
        world.waited(self._client, self._round, self._dispatch, seconds, prefetching=True)
        if self.complete:
            world.received(self._client, self._round)
        else:
            self.lose()

    def drop(self) -> None:
        """The client crashes."""
        self.end()

    def lose(self) -> None:
        """The client's next job does not use it."""
        self._world.lost(self._client, self._round, self._dispatch, "prefetched_in_vain")


class Broadcasting:
    """The broadcasts of a run.

    In a round whose payload says so, all clients that are available at the beginning of the round and have the memory
    for a job are sent the model, at the same time as the cohort. The round does not wait for them. When it closes, the
    transfers in progress are aborted, because a newer model exists.

    A client's next job that receives only the last blocks continues from the blocks of its newest broadcast, if no
    other job was computed since. If it receives the whole model, or another broadcast, the broadcast was in vain.

    Args:
        world: the world of the run.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._unused: dict[int, Broadcast] = {}
        self._under_way: list[Broadcast] = []

    def begin(self, round: int, cohort: Collection[int]) -> None:
        """Send the model to the clients outside of the cohort, if this round does."""
        world, setup = self._world, self._world.setup
        with blaming(setup.label, round, "payload"):
            if not setup.method.payload.broadcasts(round):
                return
        blocks, available = setup.sizes.blocks, world.presence.available()
        for client in sorted(set(available.nonzero()[0].tolist()) - set(cohort)):
            if world.work.of(client, blocks).fits:
                self._not_used(client)
                self._unused[client] = broadcast = Broadcast(world, client, round)
                self._under_way.append(broadcast)

    def begins(self, client: int, alpha: int) -> None:
        """The client takes part, and is sent the last ``alpha`` blocks."""
        if alpha == self._world.setup.sizes.blocks:
            self._not_used(client)
        self._unused.pop(client, None)

    def round_closes(self) -> None:
        """Abort the transfers in progress."""
        for broadcast in self._under_way:
            broadcast.end()
        self._under_way = []

    def _not_used(self, client: int) -> None:
        broadcast = self._unused.pop(client, None)
        if broadcast is not None and broadcast.complete:
            broadcast.lose()
