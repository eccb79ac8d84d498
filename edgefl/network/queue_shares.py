"""The weights of flows in a first-in, first-out queue, drawn again in each period."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import simpy

from edgefl.network.agenda import Agenda
from edgefl.network.fifo import FifoQueue
from edgefl.network.flow import Flow
from edgefl.network.sharing import Sharing


class QueueShares:
    """Keeps the weights of all flows up to date while there are flows; an idle network costs nothing.

    A multicast keeps the weight 1: it has no other end.

    Args:
        env: the clock.
        queue: draws the weights.
        agenda: the network's agenda.
        sharing: the flows.
        under_way: the flows in progress, by number.
        disturbed: called when weights change.
    """

    def __init__(
        self,
        env: simpy.Environment,
        queue: FifoQueue,
        agenda: Agenda,
        sharing: Sharing,
        *,
        under_way: Mapping[int, Flow],
        disturbed: Callable[[], None],
    ) -> None:
        self._env, self._queue = env, queue
        self._agenda, self._sharing = agenda, sharing
        self._under_way, self._disturbed = under_way, disturbed
        self._period: int | None = None

    def weight(self, flow: Flow) -> float:
        """The present weight of a flow."""
        if self._period is None:
            self._period = self._queue.number(self._env.now)
            self._await_next(self._period)
        return flow.weight * self._queue.weight(flow.source, flow.target, self._period)

    def _await_next(self, period: int) -> None:
        self._agenda.at((period + 1) * self._queue.period, self._draw, period + 1)

    def _draw(self, period: int) -> None:
        if not self._under_way:
            self._period = None
            return
        self._period = period
        self._disturbed()
        for flow in self._under_way.values():
            if flow.multicast is None:
                self._sharing.set_weight(flow.id, self.weight(flow), self._env.now)
        self._await_next(period)
