"""A transfer from its request until everything has arrived, in one attempt or in several."""

from __future__ import annotations

from collections.abc import Callable

import simpy

from edgefl.network.allotment import Outlook
from edgefl.network.flow import Flow
from edgefl.network.topology import Node
from edgefl.record.events import ABSENT
from edgefl.simulation.transfer import Transfer


class Delivery(simpy.Event):
    """One transfer; an event that triggers when the last byte has arrived, or when the last attempt has broken.

    Each attempt is a flow. Only attempts that break are repeated (see :class:`~edgefl.simulation.attempts.Attempts`).

    Attributes:
        source: the sending node.
        target: the receiving node.
        transfer: what is sent, and for whom.
        bytes: its size.
        outlook: what is known about its client's round, for a bandwidth allocation.
        started: virtual time of the request, seconds.
        ended: virtual time at which it was complete, failed or was cancelled, seconds; None while it is in progress.
        failed: whether its last attempt has broken.
        flow: the attempt in progress; None before the next one begins.
        first: the number of the first attempt's flow, -1 during that attempt.
        breaks: how many attempts have broken.
        kept: the bytes of those that need not be sent again.
    """

    def __init__(
        self,
        env: simpy.Environment,
        source: Node,
        target: Node,
        transfer: Transfer,
        bytes: int,
        *,
        outlook: Outlook | None = None,
    ) -> None:
        super().__init__(env)
        self.outlook = outlook
        self.source = source
        self.target = target
        self.transfer = transfer
        self.bytes = bytes
        self.started: float = env.now
        self.ended: float | None = None
        self.failed = False
        self.flow: Flow | None = None
        self.first = ABSENT
        self.breaks = self.kept = 0

    def end(self, *, failed: bool = False) -> None:
        """Everything has arrived, or the last attempt has broken."""
        self.ended, self.failed, self.flow = self.env.now, failed, None
        self.succeed(self)

    def on_failure(self, call: Callable[[], None]) -> None:
        """Call a function when the last attempt has broken; no effect if the delivery is over."""
        if self.callbacks is not None:
            self.callbacks.append(lambda _: call() if self.failed else None)
