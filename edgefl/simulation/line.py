"""The queue of clients that wait for dispatch in an asynchronous run, and their prefetching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefl.methods.payload import Part
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.world import World
from edgefl.training.faults import blaming


@dataclass
class Waiter:
    """A client in the queue, and its prefetch, if one has begun."""

    client: int
    prefetch: Prefetch | None = None


class Line:
    """The clients that are dispatched next, first come first served; each prefetches the parts that are ready.

    Args:
        world: the world of the run.
        length: the maximum number of waiting clients; 0 for methods without overlap.
        foresee: the predicted model version at the dispatch of the client at a place in the queue (from 0), if the
            active clients return one after another.
    """

    def __init__(self, world: World, length: int, foresee: Callable[[int], int]) -> None:
        self._world = world
        self._length = length
        self._foresee = foresee
        self._waiters: list[Waiter] = []

    @property
    def room(self) -> int:
        """How many more clients may wait."""
        return self._length - len(self._waiters)

    def join(self, client: int) -> None:
        """Add a client to the end of the queue."""
        self._waiters.append(Waiter(client))

    def take(self, number: int) -> list[Waiter]:
        """Remove and return the first ``number`` clients of the queue, or all if there are fewer."""
        taken, self._waiters = self._waiters[:number], self._waiters[number:]
        return taken

    def send_ahead(self, latest: int) -> None:
        """Begin to prefetch for the clients without a prefetch; ``latest`` is the newest model version."""
        world, setup = self._world, self._world.setup
        for place, waiter in enumerate(self._waiters):
            version = self._foresee(place)
            if waiter.prefetch is not None or version >= setup.rounds or world.presence.is_down(waiter.client):
                continue
            parts = self._ready(waiter.client, version, latest)
            if parts and world.work.of(waiter.client, setup.sizes.blocks).fits:
                waiter.prefetch = Prefetch(world, waiter.client, parts, version, awake=False)

    def break_off(self) -> None:
        """The run ends before their dispatch: drop their prefetches."""
        for waiter in self._waiters:
            if waiter.prefetch is not None:
                waiter.prefetch.drop()

    def _ready(self, client: int, version: int, latest: int) -> tuple[Part, ...]:
        """The parts that a client that will train from ``version`` can receive while ``latest`` is the newest."""
        payload = self._world.setup.method.payload
        parts = self._world.downlink(client, version, None).parts
        with blaming(self._world.setup.label, version, "payload"):
            sends_blocks = payload.partial(version)
        if version == latest and not sends_blocks:
            return parts
        # Early parts come from the previous version; the blocks that a client needs are decided at its dispatch.
        return tuple(part for part in parts if part.early) if version <= latest + 1 else ()
