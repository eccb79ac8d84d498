"""The attempts of a transfer: they begin, break when a time-out expires, and are repeated after a wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple

from edgefl.network.flow import Flow, Network
from edgefl.network.timeouts import Timeouts
from edgefl.simulation.clock import Clock
from edgefl.simulation.delivery import Delivery
from edgefl.simulation.stalls import Stalls

Cause = Literal["connection", "transfer"]
"""The time-out that expired."""


class Break(NamedTuple):
    """An attempt that has broken.

    Attributes:
        delivery: the transfer; its ``breaks`` and ``kept`` already include this break.
        flow: the attempt.
        cause: the time-out that expired.
        lost: bytes that the attempt delivered, and that will be sent again.
        wait: seconds until the next attempt; None if this was the last one, so the transfer has failed.
    """

    delivery: Delivery
    flow: Flow
    cause: Cause
    lost: int
    wait: float | None


class Attempts:
    """Sends each transfer in as many attempts as it needs and may have.

    Args:
        env: the run's clock.
        network: carries the flows, each with its :class:`Delivery` as its tag.
        timeouts: when attempts break; None: never.
        seed: of the random waits.
        broke: called for each attempt that has broken, before its transfer fails.
    """

    def __init__(
        self, env: Clock, network: Network, timeouts: Timeouts | None, seed: int, broke: Callable[[Break], None]
    ) -> None:
        self._env = env
        self._network = network
        self._timeouts = timeouts
        self._seed = seed
        self._broke = broke
        self._breaks: Counter[tuple[str, str, int, str]] = Counter()
        self._stalls: Stalls | None = None
        if timeouts is not None and timeouts.connection is not None:
            self._stalls = Stalls(env, timeouts.connection, lambda flow: self._break(flow, "connection"))

    def begin(self, delivery: Delivery) -> None:
        """Begin the next attempt of a transfer."""
        transfer, timeouts = delivery.transfer, self._timeouts
        # Other clients may receive the same parts; an update is unique.
        payload = transfer.parts if transfer.direction == "down" else None
        size, outlook = delivery.bytes - delivery.kept, delivery.outlook
        flow = self._network.transfer(
            delivery.source, delivery.target, size, tag=delivery, payload=payload, outlook=outlook
        )
        delivery.flow = flow
        if timeouts is not None and timeouts.transfer is not None:
            self._env.alarm(timeouts.transfer).callbacks.append(lambda _: self._break(flow, "transfer"))
        if self._stalls is not None:
            self._stalls.watch(flow)

    def cancel(self, delivery: Delivery) -> None:
        """Stop a transfer now; one that has ended does not change."""
        if delivery.ended is None:
            delivery.ended, flow = self._env.now, delivery.flow
            delivery.flow = None
            if flow is not None:
                self._network.cancel(flow)

    def flow_over(self, flow: Flow) -> None:
        """An attempt is complete or was stopped."""
        if self._stalls is not None:
            self._stalls.forget(flow)

    def capacity_changed(self, link: int, bits_per_second: float) -> None:
        """A link that is in use has a new capacity."""
        if self._stalls is not None:
            self._stalls.capacity_changed(link, bits_per_second)

    def _break(self, flow: Flow, cause: Cause) -> None:
        delivery, timeouts = flow.tag, self._timeouts
        if flow.ended is not None:
            return
        assert isinstance(delivery, Delivery)
        assert timeouts is not None
        delivery.flow = None
        self._network.cancel(flow)
        delivered = delivery.kept + whole_bytes(flow)
        delivery.kept = timeouts.kept(delivered)
        delivery.breaks += 1
        if delivery.breaks == 1:
            delivery.first = flow.id
        wait = self._wait(delivery, timeouts) if delivery.breaks <= timeouts.retries else None
        self._broke(Break(delivery, flow, cause, delivered - delivery.kept, wait))
        if wait is None:
            delivery.end(failed=True)
        else:
            self._env.timeout(wait).callbacks.append(lambda _: self._repeat(delivery))

    def _wait(self, delivery: Delivery, timeouts: Timeouts) -> float:
        transfer = delivery.transfer
        place = (str(delivery.source), str(delivery.target), transfer.round, transfer.item)
        self._breaks[place] += 1
        return timeouts.drawn_wait(delivery.breaks, self._seed, *place, self._breaks[place])

    def _repeat(self, delivery: Delivery) -> None:
        if delivery.ended is None:
            self.begin(delivery)


def whole_bytes(flow: Flow) -> int:
    """What a flow has delivered; parts are whole bytes, and of an aborted flow only whole bytes count."""
    return int(flow.delivered + 1e-6)
