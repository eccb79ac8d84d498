"""Clients that wait for their turn in an asynchronous run, with what they will need sent ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefl.learning.faults import blaming
from edgefl.learning.payload import Part
from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.world import World


@dataclass
class Waiter:
    """A client in line, and what was sent to it ahead, if anything was ready yet."""

    client: int
    prefetch: Prefetch | None = None


class Line:
    """Who is dispatched next, first come first served; each is sent what is ready of what it will need.

    Args:
        world: where it happens.
        length: clients that wait at most; 0 for methods without overlap.
        foresee: the model version that the client at a place in line (from 0) will be sent off with, if the clients
            that are under way return one after another.
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
        """A client waits from now on, behind the others."""
        self._waiters.append(Waiter(client))

    def take(self, number: int) -> list[Waiter]:
        """The first clients leave the line; ``number`` of them, or as many as there are."""
        taken, self._waiters = self._waiters[:number], self._waiters[number:]
        return taken

    def send_ahead(self, latest: int) -> None:
        """Send those who were sent nothing yet what is ready, now that ``latest`` is the newest model version."""
        world, setup = self._world, self._world.setup
        for place, waiter in enumerate(self._waiters):
            version = self._foresee(place)
            if waiter.prefetch is not None or version >= setup.rounds:
                continue
            parts = self._ready(waiter.client, version, latest)
            if parts and world.work.of(waiter.client, setup.sizes.blocks).fits:
                waiter.prefetch = Prefetch(world, waiter.client, parts, version, awake=False)

    def break_off(self) -> None:
        """The run ends before their turn."""
        for waiter in self._waiters:
            if waiter.prefetch is not None:
                waiter.prefetch.drop()

    def _ready(self, client: int, version: int, latest: int) -> tuple[Part, ...]:
        """What a client that will train from ``version`` can be sent while ``latest`` is the newest."""
        payload = self._world.setup.method.payload
        parts = self._world.downlink(client, version, None).parts
        with blaming(self._world.setup.label, version, "payload"):
            sends_blocks = payload.partial(version)
        if version == latest and not sends_blocks:
            return parts
        # Early parts come from the version before; which blocks a client needs is decided at its dispatch.
        return tuple(part for part in parts if part.early) if version <= latest + 1 else ()
