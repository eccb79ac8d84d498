"""Clients evaluate the model for a selector, at the beginning of the round that they may take part in."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import simpy

from edgefl.simulation.prefetching import Prefetch
from edgefl.simulation.world import World


class Asking:
    """The cost of the losses that a selector asked for: each client's download, and its forward pass.

    Only the cost takes time: the losses do not depend on it, so the cohort is already chosen. A client that is in the
    cohort has the model for its job. A download is logged as a prefetch, because the client may not take part. A client
    whose memory cannot hold its training is not charged; it is refused if it is picked. A deadline counts from the end
    of the asking.

    Not modelled: the four bytes of the answer, the waiting of candidates for each other, and random slowdowns. A client
    that leaves before it has answered counts as if it had answered.

    Args:
        world: the world of the run.
        prefetches: the transfers that the next round will use, or that are dropped if the run ends, by client.
    """

    def __init__(self, world: World, prefetches: dict[int, Prefetch]) -> None:
        self._world = world
        self._prefetches = prefetches

    def wait(self, round: int, asked: Mapping[int, int], cohort: list[int]) -> Generator[simpy.Event, object, None]:
        """Until every asked client has evaluated the model.

        Args:
            round: the round that will begin.
            asked: the number of images of each asked client.
            cohort: the clients that will take part; the others' transfers were not useful.
        """
        world, blocks = self._world, self._world.setup.sizes.blocks
        answers = []
        for client, images in asked.items():
            if world.work.of(client, blocks).fits:
                parts = world.downlink(client, round, None).parts
                self._prefetches[client] = Prefetch(world, client, parts, round, awake=False, within_round=True)
                answers.append(world.env.process(self._answer(client, round, images)))
        yield simpy.AllOf(world.env, answers)
        for client in sorted(asked.keys() - set(cohort)):
            if client in self._prefetches:
                self._prefetches.pop(client).drop()

    def _answer(self, client: int, round: int, images: int) -> Generator[simpy.Event, object, None]:
        prefetch = self._prefetches[client]
        yield prefetch.delivery | prefetch.over
        if not prefetch.usable:
            return
        seconds = self._world.forward_seconds(client, round, images)
        yield self._world.env.timeout(seconds)
        self._world.evaluated(client, round, images, seconds)
